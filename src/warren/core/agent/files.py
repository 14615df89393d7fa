"""The files of a sandbox, over the connection to its agent, which resolves all paths inside the workspace."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import to_thread

from warren.core.agent.connection import Connection
from warren.core.agent.values import Match, get_bool, get_int, parse_changes, parse_entry, parse_list, parse_match
from warren.domain.errors import Conflict, TooLarge
from warren.guest.wire.frames import ProtocolError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable

    from warren.core.agent.streams import AgentStream
    from warren.domain.values import Entry, FileChange
    from warren.guest.wire.frames import Header

T = TypeVar("T")

_QUICK = 128 << 10
"""A list of at most this many bytes is parsed at once: about a thousand files."""


class Content:
    """A part of a file that is being read: iterate over it, and close it."""

    def __init__(self, stream: AgentStream, entry: Entry, length: int) -> None:
        self._stream = stream
        self.entry = entry
        """The file as it was when it was opened."""
        self.length = length
        """How many bytes come."""
        self.sent = 0
        """How many have come."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield exactly `length` bytes. Raises Conflict at the end when the file changed meanwhile."""
        while True:
            header, payload = await self._stream.next()
            if header["t"] == "data":
                self.sent += len(payload)
                if self.sent > self.length:
                    break
                yield payload
            elif header["t"] == "ok":
                break
        if self.sent != self.length:
            raise Conflict(f"the file changed while it was read: {self.sent} of {self.length} bytes came")

    def close(self) -> None:
        """Stop reading; safe at any time."""
        self._stream.close()


class FileClient(Connection):
    """A connection that handles files. Errors of the request are NotFound, Conflict, InvalidRequest or TooLarge."""

    async def stat(self, path: str, *, follow: bool = True) -> Entry:
        """Describe a file or folder, or with `follow=False` a symbolic link itself."""
        return await self._entry("fs.stat", path=path, follow=follow)

    async def list(
        self, path: str = ".", *, recursive: bool = False, limit: int = 10_000, hidden: bool = True
    ) -> tuple[tuple[Entry, ...], bool]:
        """List a folder, sorted by path; return whether the list is complete."""
        header, payload = await self.call(
            "fs.list", {"path": path, "recursive": recursive, "limit": limit, "hidden": hidden}
        )
        return await self._parse_all(parse_entry, payload), self.checked(get_bool, header, "complete")

    def read(self, path: str, offset: int = 0, length: int | None = None) -> AsyncGenerator[bytes, None]:
        """Yield a file's content, or a part of it. Close it if you leave early."""
        asked: Header = {"path": path, "offset": offset}
        if length is not None:
            asked["length"] = length
        return self._data(functools.partial(self.request, "fs.read", asked))

    async def open_file(self, path: str, offset: int = 0, length: int | None = None, *, follow: bool = True) -> Content:
        """Open a file, or a part of it; with `follow=False` no symbolic link. The caller closes it."""
        asked: Header = {"path": path, "offset": offset}
        if not follow:
            asked["follow"] = False
        if length is not None:
            asked["length"] = length
        stream = await self.request("fs.read", asked)
        try:
            header, _ = await stream.next()
            entry = self.checked(_parse_stat, header)
        except BaseException:
            stream.close()
            raise
        left = max(0, entry.size - offset)
        return Content(stream, entry, left if length is None else min(left, length))

    async def read_bytes(self, path: str, limit: int) -> bytes:
        """Return a whole file. Raises TooLarge when it is larger than `limit`."""
        async with contextlib.aclosing(self.read(path, 0, limit + 1)) as pieces:
            content = b"".join([piece async for piece in pieces])
        if len(content) > limit:
            raise TooLarge(f"{path!r} is larger than {limit} bytes")
        return content

    async def read_scratch(self, folder: str, path: str, limit: int) -> bytes:
        """Return a whole file below a folder of /tmp. Raises TooLarge when it is larger than `limit`."""
        pieces: list[bytes] = []
        left = limit
        reading = self._data(functools.partial(self.request, "scratch.read", {"folder": folder, "path": path}))
        async with contextlib.aclosing(reading) as found:
            async for piece in found:
                pieces.append(piece)
                left -= len(piece)
                if left < 0:
                    raise TooLarge(f"{path!r} is larger than {limit} bytes")
        return b"".join(pieces)

    def empty_scratch(self, folders: Iterable[str]) -> None:
        """Empty folders of /tmp, before any later request and without waiting for it."""
        self.tell("scratch.empty", {"folders": list(folders)})

    async def write(
        self,
        path: str,
        content: bytes | AsyncIterable[bytes],
        *,
        mode: int = 0o644,
        create: str = "replace",
        parents: bool = True,
        sync: bool = False,
    ) -> Entry:
        """Write a file: whole, or not at all; with `sync` to the disk. `create` is replace, exclusive or append."""
        header = await self._upload(
            "fs.write", {"path": path, "mode": mode, "create": create, "parents": parents, "sync": sync}, content
        )
        return self.checked(parse_entry, header.get("entry"))

    async def mkdir(self, path: str, *, parents: bool = True) -> Entry:
        """Make a folder."""
        return await self._entry("fs.mkdir", path=path, parents=parents)

    async def move(self, path: str, to: str, *, overwrite: bool = False) -> Entry:
        """Rename a file or folder."""
        return await self._entry("fs.move", path=path, to=to, overwrite=overwrite)

    async def delete(self, path: str, *, recursive: bool = False) -> int:
        """Delete a file or folder; return how many entries that were."""
        header, _ = await self.call("fs.delete", {"path": path, "recursive": recursive})
        return self.checked(get_int, header, "deleted")

    async def search(
        self,
        path: str = ".",
        *,
        name: str | None = None,
        text: str | None = None,
        regex: str | None = None,
        limit: int = 1000,
    ) -> tuple[tuple[Match, ...], bool]:
        """Find files by a glob, and lines by a text or a regular expression; return whether the list is complete."""
        asked = {"path": path, "name": name, "text": text, "regex": regex, "limit": limit}
        header, payload = await self.call(
            "fs.search", {key: value for key, value in asked.items() if value is not None}
        )
        return await self._parse_all(parse_match, payload), self.checked(get_bool, header, "complete")

    def pack(self, path: str = ".", format: str = "tar") -> AsyncGenerator[bytes, None]:  # noqa: A002 - the wire's word
        """Yield an archive of a folder: tar, tar.gz or zip. Close it if you leave early."""
        return self._data(functools.partial(self.request, "fs.pack", {"path": path, "format": format}))

    async def unpack(
        self,
        path: str,
        source: bytes | AsyncIterable[bytes],
        format: str = "tar",  # noqa: A002 - the wire's word
        *,
        sync: bool = False,
    ) -> int:
        """Unpack an archive into a folder: all of it, or nothing; with `sync` to the disk. Return how many members."""
        header = await self._upload("fs.unpack", {"path": path, "format": format, "sync": sync}, source)
        return self.checked(get_int, header, "entries")

    async def changes(self) -> tuple[tuple[FileChange, ...], bool]:
        """Return the files changed since the last execution or call of this, and whether the list is complete."""
        header, payload = await self.call("fs.changes")
        changed = self.checked(lambda: parse_changes(parse_list(payload)))
        return changed, self.checked(get_bool, header, "complete")

    async def _parse_all(self, parse: Callable[[dict[str, Any]], T], payload: bytes) -> tuple[T, ...]:
        """Parse a list; a long one in a thread, because all other calls would wait for it."""

        def work() -> tuple[T, ...]:
            return tuple(parse(one) for one in parse_list(payload))

        if len(payload) <= _QUICK:
            return self.checked(work)
        try:
            return await to_thread.run_sync(work)
        except ProtocolError as error:
            raise self.break_off(error) from error

    async def _entry(self, op: str, **parameters: Any) -> Entry:
        header, _ = await self.call(op, parameters)
        return self.checked(parse_entry, header.get("entry"))

    async def _data(self, start: Callable[[], Awaitable[AgentStream]]) -> AsyncGenerator[bytes, None]:
        """Yield a stream's data to its end; a consumer that stops early cancels it."""
        stream = await start()
        try:
            while True:
                header, payload = await stream.next()
                if header["t"] == "data":
                    yield payload
                elif header["t"] == "ok":
                    return
        finally:
            stream.close()

    async def _upload(self, op: str, parameters: Header, content: bytes | AsyncIterable[bytes]) -> Header:
        stream = await self.request(op, parameters)
        try:
            await stream.send_all(content)
            header, _ = await stream.answer()
        finally:
            stream.close()
        return header


def _parse_stat(header: Header) -> Entry:
    if header["t"] != "event" or header.get("kind") != "stat":
        raise ProtocolError("the content of a file that was not described first")
    return parse_entry(header.get("entry"))
