"""`warren doctor` says what holds on this host, and `warren stop-engine` ends what the embedded engine keeps warm."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.options import AsJson
from warren.cli.tables import print_json, print_table, wants_json
from warren.errors import ConfigError, InvalidRequest

if TYPE_CHECKING:
    from warren.engines.local.probe import Layer
    from warren.settings import Settings

EXAMPLES = """\b
Examples:
  warren doctor
  warren doctor --json
"""

STOP_EXAMPLES = """\b
Examples:
  warren stop-engine
  warren stop-engine --sandboxes    # and every sandbox, once the service has ended
"""


def doctor(*, as_json: AsJson = False) -> int:
    """Check every layer of isolation on this host: whether it holds, why not, and the command that fixes it.

    Also what the images need of this system and do not find. Leaves with 1 when a layer is missing that the settings do
    not name optional.
    """
    from warren.engines.local.examine import examine
    from warren.engines.local.probe import WITHOUT_ASKING, check_names, find_missing
    from warren.settings import Settings

    settings = Settings.load()
    optional = WITHOUT_ASKING.union(settings.optional_layers)
    try:
        check_names(optional)
    except InvalidRequest as exc:
        raise ConfigError(str(exc)) from exc
    layers = list(examine().layers)
    missing = find_missing(layers, optional)
    images = _find_wanting(settings)
    if wants_json(as_json):
        print_json({"ok": not missing, "layers": [_as_json(layer, optional) for layer in layers], "images": images})
    else:
        _print(layers, missing, optional)
        for image in images:
            print(f"Image {image['name']} misses {', '.join(image['missing'])}: {image['fix']}")
    return 1 if missing else 0


def stop_engine(
    *,
    sandboxes: Annotated[
        bool,
        typer.Option("--sandboxes", help="Stop every sandbox first. Workspaces that are meant to stay do; others go."),
    ] = False,
) -> int:
    """End the processes that the embedded engine keeps warm between commands.

    Running sandboxes live on, unless they are to be stopped too. The next command starts the processes again, which
    takes about a second.
    """
    import anyio

    from warren.cli.data_lock import only_one
    from warren.cli.embedded import retire_engine
    from warren.settings import Settings

    settings = Settings.load()
    # A service would take its sandboxes for lost, and start them again for the next call.
    with only_one(settings.data_dir) if sandboxes else contextlib.nullcontext():
        anyio.run(retire_engine, settings, sandboxes)
    if sys.stdout.isatty():
        of_sandboxes = "Sandboxes were stopped" if sandboxes else "Running sandboxes live on"
        print(f"What was kept warm has ended. {of_sandboxes}; the next command starts it again.")
    return 0


def _find_wanting(settings: Settings) -> list[dict[str, Any]]:
    """Return the images that need something of this system which is not there, and what brings it."""
    from warren.app import build_catalog
    from warren.core.image_system import build_command, find_missing

    specs = (spec for spec in build_catalog(settings).specs() if spec.root == "host")
    found = ((spec.name, find_missing(spec.parts)) for spec in specs)
    return [{"name": name, "missing": list(lost), "fix": build_command(lost)} for name, lost in found if lost]


def _as_json(layer: Layer, optional: frozenset[str]) -> dict[str, object]:
    return {
        "name": layer.name,
        "holds": layer.holds,
        "optional": layer.name in optional,
        "detail": layer.detail,
        "fix": layer.fix,
    }


def _print(layers: list[Layer], missing: list[Layer], optional: frozenset[str]) -> None:
    rows = [(layer.name, _word(layer, optional), layer.detail) for layer in layers]
    print_table(None, ("layer", "holds", "detail"), rows)
    print()
    for layer in layers:
        if not layer.holds and layer.fix:
            print(f"To fix {layer.name}: {layer.fix}")
    if missing:
        names = ", ".join(layer.name for layer in missing)
        print(f"Sandboxes are refused here: {names} cannot be applied.")
    else:
        print("Sandboxes can be made here.")


def _word(layer: Layer, optional: frozenset[str]) -> str:
    if layer.holds:
        return "\x1b[32myes\x1b[0m"
    return "\x1b[33mno, optional\x1b[0m" if layer.name in optional else "\x1b[31mno\x1b[0m"
