"""`warren sandbox cp`: files and folders between this machine and a workspace."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.options import AsJson, Target, argument
from warren.cli.service.candidates import list_places
from warren.cli.service.connection import run_with_sandbox
from warren.cli.terminal.progress import show_transfer
from warren.cli.terminal.tables import print_either
from warren.cli.units import render_size, shorten_id
from warren.domain.errors import NotFound

if TYPE_CHECKING:
    from warren import AsyncFiles, AsyncSandbox
    from warren.cli.execution.copying import Room

EXAMPLES = """\b
Examples:
  warren sandbox cp data.csv 3fa9:
  warren sandbox cp 3fa9:results/chart.png .
  warren sandbox cp src/ 3fa9:project          # a folder, with all below it
  warren sandbox cp 3fa9:. backup
  warren sandbox cp 3fa9:out.json - | jq .
"""

_MARGIN = 256 << 20
"""Bytes that the names of files may take in an archive, on top of the size of a workspace."""


@dataclass(frozen=True, slots=True)
class _End:
    """One end of a copy."""

    sandbox: str | None
    path: str

    @property
    def wants_name(self) -> bool:
        """Whether it is written as a folder, in which the copy keeps its name."""
        return self.path in {"", ".", ".."} or self.path.endswith("/")


@dataclass(frozen=True, slots=True)
class _Copied:
    source: str
    target: str
    bytes: int
    is_folder: bool


def copy(
    source: Annotated[
        str, argument("SOURCE", "Local path or SANDBOX:PATH; - is standard input.", autocompletion=list_places)
    ],
    target: Annotated[
        str, argument("TARGET", "SANDBOX:PATH or local path; - is standard output.", autocompletion=list_places)
    ],
    *,
    where: Target,
    as_json: AsJson = False,
) -> int:
    """Copy a file, or a folder with all below it, into a sandbox or out of it.

    One of the two is SANDBOX:PATH, relative to the workspace. As with cp, a copy into an existing folder keeps its
    name. Write a local file whose name has a colon as ./name.
    """
    from warren.cli.execution.copying import Room

    begin, end = _parse(source), _parse(target)
    if (begin.sandbox is None) == (end.sandbox is None):
        raise typer.BadParameter("one of the two must be SANDBOX:PATH, and the other a local path.")
    if begin.sandbox is None and begin.path != "-":
        os.stat(begin.path)

    async def work(place: AsyncSandbox) -> None:
        if begin.sandbox is None:
            copied = await _upload(place.files, begin.path, end)
        else:
            copied = await _download(place.files, begin.path, end, Room((place.info.disk_mb << 20) + _MARGIN))
        _tell(copied, place.id, as_json=as_json, is_upload=begin.sandbox is None)

    return run_with_sandbox(where, begin.sandbox or end.sandbox or "", work)


def _parse(text: str) -> _End:
    sandbox, colon, path = text.partition(":")
    if not colon or "/" in sandbox or not sandbox:
        return _End(None, text)
    return _End(sandbox, path)


async def _upload(files: AsyncFiles, source: str, end: _End) -> _Copied:
    target = end.path.rstrip("/") or "."
    if source == "-":
        if end.wants_name:
            raise typer.BadParameter("standard input has no name: write SANDBOX:NAME.")
        with show_transfer("standard input") as transfer:
            await files.write(target, sys.stdin.buffer, progress=transfer)
        return _Copied(source, target, (await files.stat(target)).size, is_folder=False)
    name, is_folder = _look(source)
    if end.wants_name or await _is_folder(files, target):
        target = name if target == "." else f"{target}/{name}"
    with show_transfer(source) as transfer:
        if is_folder:
            await files.mkdir(target)
            await files.upload_folder(source, target, progress=transfer)
        else:
            await files.upload(source, target, progress=transfer)
    return _Copied(source, target, transfer.done, is_folder)


def _look(source: str) -> tuple[str, bool]:
    """Return the name of a file or folder of this machine, and whether it is a folder."""
    return os.path.basename(os.path.abspath(source)), os.path.isdir(source)


async def _download(files: AsyncFiles, path: str, end: _End, room: Room) -> _Copied:
    source = path.rstrip("/") or "."
    is_folder = await _is_folder(files, source)
    if not is_folder and not await files.exists(source):
        raise NotFound(f"there is no {source} in the workspace of the sandbox")
    to_pipe = end.path == "-"
    target = "-" if to_pipe else _place(source, end, is_folder=is_folder)
    to = sys.stdout.buffer if to_pipe else target
    with show_transfer(source, room.check) as transfer:
        if not is_folder:
            await files.download(source, to, progress=transfer)
        elif to_pipe:
            await files.archive(source, to, progress=transfer)
        else:
            await files.download_folder(source, target, progress=transfer)
    return _Copied(source, target, transfer.done, is_folder)


def _place(source: str, end: _End, *, is_folder: bool) -> str:
    """Choose where on this machine it goes, and make the folder that it goes to."""
    target, name = end.path or ".", os.path.basename(source)
    if (end.wants_name or os.path.isdir(target)) and name not in {"", ".", ".."}:
        target = os.path.join(target, name)
    if not is_folder:
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    return target


async def _is_folder(files: AsyncFiles, path: str) -> bool:
    from warren.domain.errors import Conflict

    if path in {".", "/"}:
        return True
    try:
        await files.stat(path)
    except Conflict:
        return True
    except NotFound:
        return False
    return False


def _tell(copied: _Copied, sandbox_id: str, *, as_json: bool, is_upload: bool) -> None:
    if copied.target == "-" and not is_upload:
        return
    at = f"{shorten_id(sandbox_id)}:{copied.target}" if is_upload else copied.target
    found = {"sandbox": sandbox_id, "source": copied.source, "target": copied.target, "bytes": copied.bytes}
    sentence = f"{copied.source} is at {at}, {render_size(copied.bytes)}."
    print_either(as_json, found | {"folder": copied.is_folder}, sentence)
