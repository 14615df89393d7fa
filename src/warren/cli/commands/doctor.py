"""`warren doctor` says what holds on this host, and `warren stop-engine` ends what the embedded engine keeps warm."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.doctor_report import Report, print_gpus
from warren.cli.terminal.tables import print_json
from warren.domain.errors import ConfigError

if TYPE_CHECKING:
    from warren.settings import Settings

EXAMPLES = """\b
Examples:
  warren doctor
  warren doctor --json | jq .layers
  warren doctor --fix              # shows what it would change, and asks
  warren doctor --fix --yes        # in a script
"""

STOP_EXAMPLES = """\b
Examples:
  warren stop-engine
  warren stop-engine --sandboxes    # and every sandbox, once the service has ended
"""


def doctor(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Show what would make missing layers hold, ask, and do it as root, by sudo.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --fix: do not ask.")] = False,
) -> int:
    """Check every layer of isolation on this host: whether it holds, why not, and the command that fixes it.

    Prints the host, its init and its control groups first, and at last what the images need of this system and do not
    find, and which GPUs can be opened. Leaves with 1 when a layer is missing that the settings do not name optional.
    """
    from warren.bootstrap.local_engine import find_gpus
    from warren.settings import Settings

    settings = Settings.load()
    report = _examine(settings)
    if fix:
        if not _repair(report, yes=yes):
            return 1
        report = _examine(settings)
    images = _find_wanting(settings)
    gpus = find_gpus(settings, report.found.layers)
    if as_json:
        print_json(report.as_json() | {"images": images, "gpus": gpus})
    else:
        report.print()
        for image in images:
            print(f"Image {image['name']} misses {', '.join(image['missing'])}: {image['fix']}")
        print_gpus(gpus)
    return 1 if report.found.missing or report.unwritable else 0


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

    from warren.bootstrap.local_engine import retire_engine
    from warren.cli.service.data_lock import only_one
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
    from warren.bootstrap.app import build_catalog
    from warren.core.images.system import build_command, find_missing

    specs = (spec for spec in build_catalog(settings).specs() if spec.root == "host")
    found = ((spec.name, find_missing(spec.parts)) for spec in specs)
    return [{"name": name, "missing": list(lost), "fix": build_command(lost)} for name, lost in found if lost]


def _examine(settings: Settings) -> Report:
    from warren.bootstrap.local_engine import examine_host

    return Report(examine_host(settings), "" if _is_writable(settings.data_dir) else settings.data_dir)


def _is_writable(folder: str) -> bool:
    """Whether a folder can be written, or made where it is not there."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(os.path.abspath(folder))
    # Pseudo file systems let root pass here, and make nothing.
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK) and not folder.startswith(("/proc", "/sys"))


def _repair(report: Report, *, yes: bool) -> bool:
    """Show the repairs of this host, ask, and do them; False where they were not done."""
    from warren.bootstrap.local_engine import PROGRAM_FOLDERS, apply_repairs, plan_repairs

    found = report.found
    repairs = plan_repairs(found.layers, found.host)
    if not repairs:
        _tell("Nothing here is for --fix to change." if found.missing else "Every layer that is needed holds.")
        return True
    _tell("\n".join(("These commands will be run as root:", "", *map(str, repairs), "")))
    sudo = "" if found.host.is_root else shutil.which("sudo", path=PROGRAM_FOLDERS)
    if sudo is None:
        _tell("There is no sudo here: run these commands as root.")
        return False
    if not yes and not sys.stdin.isatty():
        raise ConfigError("--fix asks before it changes anything, and there is no terminal: add --yes")
    if not yes and not typer.confirm("Run them?", err=True):
        return False
    apply_repairs(repairs, sudo=sudo)
    return True


def _tell(text: str) -> None:
    print(text, file=sys.stderr)
