"""Files between this host and a workspace: copied in before a program runs, out after it."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import tarfile
from typing import IO, TYPE_CHECKING

import anyio
from anyio import to_thread

from warren.cli.terminal.tables import harmless
from warren.domain.errors import InvalidRequest, RequestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from warren import Result
    from warren.core.agent.client import AgentClient
    from warren.domain.values import ExecResult

_CHUNK = 256 << 10
_SETTINGS = "warren.toml"


class Room:
    """What may still be copied out: no more than a workspace can hold, however large a file of holes says it is."""

    def __init__(self, most: int) -> None:
        self._left = most

    def check(self, done: int, _total: int | None = None) -> None:
        """Raise InvalidRequest when a file has more than there is room for."""
        if done > self._left:
            raise InvalidRequest("the copies would be larger than the workspace can be: its files are sparse")

    def take(self, done: int) -> None:
        """Note that a file was copied."""
        self._left -= done


def check(copies: Iterable[tuple[str, str]], folder: str | None) -> None:
    """Check the files to copy in, and make the folder to copy out to, before anything runs. Raises InvalidRequest."""
    for source, _ in copies:
        if not os.path.exists(source):
            raise InvalidRequest(f"--file {source}: there is no such file or folder")
        if not os.access(source, os.R_OK):
            raise InvalidRequest(f"--file {source} may not be read")
    if folder is None:
        return
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as exc:
        raise InvalidRequest(f"--output {folder} cannot be made: {os.strerror(exc.errno or 0)}") from exc
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidRequest(f"--output {folder} may not be written to")


async def copy_in(agent: AgentClient, source: str, target: str) -> None:
    """Copy a file, or a folder with all below it, into the workspace."""
    if not await anyio.Path(source).is_dir():
        async with await anyio.open_file(source, "rb") as file:
            await agent.write(target, _blocks(file))
        return
    await agent.mkdir(target)
    async with anyio.TemporaryFile() as packed:
        await to_thread.run_sync(_pack, source, packed.wrapped)
        await packed.seek(0)
        await agent.unpack(target, _blocks(packed), "tar")


async def copy_out(result: ExecResult | Result, folder: str, fetch: Callable[[str, str], Awaitable[None]]) -> None:
    """Copy the files that a program created or changed into `folder`, at the same paths below it.

    `fetch` copies one, from a path of the workspace to a path here.
    """
    for change in result.files_changed:
        if change.action == "deleted":
            continue
        target = place(folder, change.path)
        try:
            check_copy(folder, change.path)
            await fetch(change.path, target)
        except (RequestError, OSError) as exc:
            print(harmless(f"warren: {change.path} was not copied: {exc}"), file=sys.stderr)
    if not result.files_changed_complete:
        print(f"warren: more files changed than can be listed; not all are in {folder}", file=sys.stderr)


async def fetch(agent: AgentClient, room: Room, path: str, target: str) -> None:
    """Copy a regular file out of the workspace; anything else is left out."""
    if (await agent.stat(path, follow=False)).type == "file":
        os.makedirs(os.path.dirname(target), exist_ok=True)
        await write_whole(target, agent.read(path), room)


async def write_whole(target: str, parts: AsyncIterator[bytes], room: Room) -> None:
    """Write a stream to a file that appears only when it is complete."""
    # A name of its own: another command may copy to the same place now.
    partial, done = os.path.join(os.path.dirname(target), f".warren-{secrets.token_hex(8)}.partial"), 0
    try:
        async with await anyio.open_file(partial, "xb") as file:
            async for part in parts:
                done += len(part)
                room.check(done)
                await file.write(part)
        os.replace(partial, target)
        room.take(done)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)


def check_copy(folder: str, path: str) -> None:
    """Refuse what would lie elsewhere, or set up the next Warren that is started there. Raises InvalidRequest."""
    if os.path.basename(path) == _SETTINGS:
        raise InvalidRequest("a file of that name holds settings of Warren, which no program in a sandbox makes")
    hidden = next((part for part in path.split("/") if part.startswith(".")), None)
    if hidden is not None and os.path.lexists(os.path.join(folder, path.partition("/")[0])):
        # .git/hooks, .bashrc, .env: what programs of the operator's obey without being asked.
        raise InvalidRequest(f"{hidden} is hidden, and {folder} has files already: copy out to a new folder")
    way = folder
    for part in path.split("/")[:-1]:
        way = os.path.join(way, part)
        if os.path.islink(way):
            raise InvalidRequest(f"{way} is a link, which may lead out of {folder}")


def place(folder: str, path: str) -> str:
    """Join a path that came from a sandbox, which may say anything, to a folder of ours."""
    parts = path.split("/")
    if path.startswith("/") or not all(parts) or "\0" in path or {".", ".."} & set(parts):
        raise InvalidRequest(f"the sandbox named a file {path!r}, which is no path below its workspace")
    return os.path.join(folder, *parts)


async def _blocks(file: anyio.AsyncFile[bytes]) -> AsyncIterator[bytes]:
    while block := await file.read(_CHUNK):
        yield block


def _pack(source: str, target: IO[bytes]) -> None:
    from warren.sdk.folders import anonymous

    with tarfile.open(fileobj=target, mode="w") as archive:
        archive.add(source, arcname=".", filter=anonymous)
