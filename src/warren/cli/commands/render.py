"""`warren render`: a page with slides becomes a presentation."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import zipfile
import zlib
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.options import AsJson, Target, argument, option
from warren.cli.service.connection import run_with_client
from warren.cli.terminal.progress import bar
from warren.cli.terminal.tables import as_plain, harmless, print_json
from warren.domain.errors import RenderFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from warren import AsyncClient, Rendered, RenderStep
    from warren.cli.terminal.signals import Signals

EXAMPLES = """\b
Examples:
  warren render deck.html
  warren render deck.html --editable -o talk.pptx
  warren render deck.html --assets pictures --previews slides
  warren render deck.html --url https://sandboxes.example.com
"""

_ASSET = re.compile(r"[A-Za-z0-9._-]{1,128}(/[A-Za-z0-9._-]{1,128}){0,7}", re.ASCII)
_PREVIEW = re.compile(r"slides/slide_[0-9]{3,6}\.png", re.ASCII)
_MOST_WARNINGS = 20
_HINTS = {"no_slides": 'mark each slide with the class, as in <section class="slide">'}
"""What to do, by the reason of a failure whose sentence does not say it."""
_PHASES = {"load": "loading the page", "slides": "taking slides", "write": "writing the presentation"}


def render(
    page: Annotated[str, argument("PAGE", "HTML file; each element of the class slide becomes a slide.")],
    *,
    output: Annotated[
        str | None, option("FILE", "Output file: a .pptx, or a .zip with everything.", "--output", "-o")
    ] = None,
    assets: Annotated[str | None, option("DIR", "Folder that the page reads as assets/.")] = None,
    editable: Annotated[
        bool | None,
        typer.Option(
            "--editable/--pictures", show_default=False, help="Editable text and shapes, or one picture per slide."
        ),
    ] = None,
    previews: Annotated[str | None, option("DIR", "Save a picture of each slide to this folder.")] = None,
    target: Target,
    as_json: AsJson = False,
) -> int:
    """Make a PowerPoint presentation of a page.

    The page is rendered in a sandbox of its own without a network, so its files must be in the folder of --assets or in
    the page itself. Without -o, the presentation is written beside the page. Needs the image office:
    warren image build office.
    """
    wanted = output or f"{os.path.splitext(page)[0]}.pptx"
    if not wanted.endswith((".pptx", ".zip")):
        raise typer.BadParameter(f"{wanted} ends neither in .pptx nor in .zip: choose one of them.")
    _check_writable(wanted, previews)
    html, files = _read_page(page), _read_assets(page, assets)

    async def work(client: AsyncClient, _signals: Signals) -> int:
        try:
            with _progress() as show:
                made = await client.renders.create(html, assets=files, editable=editable, progress=show)
        except RenderFailed as failure:
            _warn(getattr(failure, "__notes__", ()))
            if failure.reason not in _HINTS:
                raise
            raise RenderFailed(f"{failure}: {_HINTS[failure.reason]}", reason=failure.reason) from failure
        _save(made.archive, wanted, previews)
        _tell(made, wanted, as_json=as_json)
        return 0

    return run_with_client(target, work)


def _check_writable(output: str, previews: str | None) -> None:
    """Raise BadParameter for what could not be written, before anybody waits for it."""
    folder = os.path.dirname(output) or "."
    if os.path.isdir(output) or not os.path.isdir(folder):
        why = "it is a folder" if os.path.isdir(output) else f"there is no folder {folder}"
        raise typer.BadParameter(f"{output} cannot be written: {why}.")
    if previews is not None and os.path.exists(previews) and not os.path.isdir(previews):
        raise typer.BadParameter(f"{previews} is not a folder: name one for the pictures.")


def _read_page(path: str) -> str:
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as exc:
        raise typer.BadParameter(f"{path} cannot be read: {os.strerror(exc.errno or 0)}.") from exc
    except UnicodeDecodeError as exc:
        raise typer.BadParameter(f"{path} is not a text file in UTF-8: save it as one.") from exc
    if not text.strip():
        raise typer.BadParameter(f"{path} is empty.")
    return text


def _read_assets(page: str, folder: str | None) -> dict[str, bytes]:
    """Read the files of a folder and those in it; of the one beside the page, if there is one, when none is named."""
    beside = os.path.join(os.path.dirname(page), "assets")
    if folder is None and not os.path.isdir(beside):
        return {}
    top = folder or beside
    found: dict[str, bytes] = {}
    try:
        os.stat(os.path.join(top, "."))  # Raises for anything but a folder: the next line would find it empty.
        for inside, folders, names in os.walk(top):
            # Hidden files were not meant.
            folders[:] = [name for name in folders if not name.startswith(".")]
            for path in (os.path.join(inside, name) for name in names if not name.startswith(".")):
                name = os.path.relpath(path, top)
                if not os.path.isfile(path):
                    continue
                if not _ASSET.fullmatch(name):
                    _warn([f"{path} is left out: names of assets have letters, digits, dots, dashes, underscores"])
                    continue
                with open(path, "rb") as file:
                    found[name] = file.read()
    except OSError as exc:
        raise typer.BadParameter(f"{top} cannot be read: {os.strerror(exc.errno or 0)}.") from exc
    return found


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[RenderStep], None]]:
    """Show the progress on a terminal."""
    with bar("starting the browser", "MofNCompleteColumn") as update:
        yield lambda step: update(
            description=_PHASES.get(step.phase, step.phase), completed=step.done, total=step.total or None
        )


def _save(archive: bytes, output: str, previews: str | None) -> None:
    """Write what was made. The archive comes from where a stranger's page was shown, and may be anything."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            names = opened.namelist()
            content = _read(opened, next((name for name in names if name.endswith(".pptx")), ""), len(archive))
            pictures, left = {}, len(archive)
            for name in names if previews is not None else []:
                if _PREVIEW.fullmatch(name):
                    pictures[os.path.basename(name)] = picture = _read(opened, name, left)
                    left -= len(picture)
    except (zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, RuntimeError, EOFError) as exc:
        raise RenderFailed(
            "the answer is not an archive of a presentation: the page must have attacked its renderer"
        ) from exc
    _write(output, archive if output.endswith(".zip") else content)
    if previews is not None:
        os.makedirs(previews, exist_ok=True)
        for name, picture in pictures.items():
            _write(os.path.join(previews, name), picture)


def _read(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Read a member. None is packed in ours, so that more than the archive has is a bomb."""
    with archive.open(name) as member:
        content = member.read(most + 1)
    if len(content) > most:
        raise zipfile.BadZipFile
    return content


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def _tell(made: Rendered, output: str, *, as_json: bool) -> None:
    info = made.info
    _warn(info.warnings)
    if as_json:
        print_json({"output": output, **as_plain(info)})
        return
    kind = "editable" if info.version == "v2" else "as pictures"
    print(f"{output}: {info.slides} slide{'' if info.slides == 1 else 's'}, {kind}.")


def _warn(warnings: Sequence[str]) -> None:
    for each in warnings[:_MOST_WARNINGS]:
        print(f"warning: {harmless(each)}", file=sys.stderr)
    if len(warnings) > _MOST_WARNINGS:
        print(f"warning: and {len(warnings) - _MOST_WARNINGS} more, which --json lists", file=sys.stderr)
