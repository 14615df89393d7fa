"""`warren image`: the catalog of images, and building them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.options import AsJson, argument
from warren.cli.service import candidates
from warren.cli.terminal.tables import print_either, print_json, print_table
from warren.cli.units import render_size

if TYPE_CHECKING:
    from warren.core.images.catalog import Catalog, ImageSpec, ImageStatus

app = typer.Typer(
    help="List, build, show and remove images: what sandboxes are made from.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[
    str, argument("NAME", "Name of the image, from `warren image list`.", autocompletion=candidates.list_images)
]


@app.command("list", short_help="List the images and which are built.", epilog="\b\nExample:\n  warren image list")
def list_images(*, as_json: AsJson = False) -> None:
    """List the images of the catalog, and which of them are built."""
    catalog = _catalog()
    found = [(spec, catalog.status(spec.name)) for spec in catalog.specs()]
    if as_json:
        print_json([_as_json(spec, status) for spec, status in found])
        return
    rows = [(spec.name, _built(status), str(len(spec.packages)), spec.description) for spec, status in found]
    print_table(None, ("image", "built", "packages", "description"), rows)


@app.command("build", epilog="\b\nExamples:\n  warren image build data\n  warren image build data --force")
def build(
    name: Name,
    *,
    force: Annotated[bool, typer.Option("--force", help="Build again even if nothing changed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build an image unless it is built already. An interrupted build leaves nothing behind."""
    from warren.cli.terminal.progress import build_with_progress

    catalog = _catalog()
    was_built = catalog.status(name).built and not force
    image = build_with_progress(catalog, name, force=force)
    status = catalog.status(name)
    found = {"name": name, "digest": image.digest, "built_now": not was_built, "size_bytes": status.size_bytes}
    told = "built already and nothing changed" if was_built else f"built: {render_size(status.size_bytes)}"
    print_either(as_json, found, f"{name} is {told}.")


@app.command("show", epilog="\b\nExample:\n  warren image show data")
def show(name: Name, *, as_json: AsJson = False) -> None:
    """Show the contents of an image."""
    catalog = _catalog()
    spec, status = catalog.spec(name), catalog.status(name)
    if as_json:
        print_json(_as_json(spec, status))
        return
    rows = [
        ("description", spec.description),
        ("built", _built(status)),
        ("digest", status.digest),
        ("python", spec.python),
        ("packages", ", ".join(spec.packages)),
        ("of the system", ", ".join(spec.parts.packages)),
        ("of Node.js", ", ".join(spec.parts.node)),
        ("preloaded", ", ".join(spec.preload)),
        ("environment", ", ".join(f"{key}={value}" for key, value in spec.env.items())),
        ("root", spec.root),
        ("spec", spec.path),
    ]
    print_table(None, (name, ""), [row for row in rows if row[1]])


@app.command(
    "remove",
    short_help="Delete the builds of an image.",
    epilog="\b\nExamples:\n  warren image remove data\n  warren image remove data --stale",
)
def remove(
    name: Name,
    *,
    stale: Annotated[bool, typer.Option("--stale", help="Only outdated builds.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete the builds of an image; its spec stays, and it can be built again."""
    import anyio

    from warren.bootstrap.local_engine import remove_image
    from warren.settings import Settings

    freed = anyio.run(partial(remove_image, Settings.load(), name, stale=stale))
    sentence = f"{render_size(freed)} freed." if freed else f"There was nothing of {name} to remove."
    print_either(as_json, {"name": name, "freed_bytes": freed}, sentence)


def _catalog() -> Catalog:
    from warren.bootstrap.app import build_catalog
    from warren.settings import Settings

    return build_catalog(Settings.load())


def _built(status: ImageStatus) -> str:
    if status.built:
        return render_size(status.size_bytes)
    return "no, an earlier version is" if status.stale else "no"


def _as_json(spec: ImageSpec, status: ImageStatus) -> dict[str, Any]:
    return {
        "name": spec.name,
        "description": spec.description,
        "built": status.built,
        "digest": status.digest,
        "size_bytes": status.size_bytes,
        "stale": list(status.stale),
        "python": spec.python,
        "packages": list(spec.packages),
        "system_packages": list(spec.parts.packages),
        "node_packages": list(spec.parts.node),
        "preload": list(spec.preload),
        "env": dict(spec.env),
        "root": spec.root,
        "spec": spec.path,
    }
