"""Use cases of workspace files: each finds the caller's sandbox, calls its agent, and audits the operation.

Contents are streamed and never held. Paths are relative to the workspace, or absolute under `/workspace`; the agent
resolves them inside the sandbox.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
import tarfile
from typing import TYPE_CHECKING, Any, TypeVar

from warren.core.concurrency.fair_queue import OwnerLimiter
from warren.core.concurrency.keyed_lock import KeyedLock
from warren.core.telemetry.counters import Counters
from warren.domain.errors import NotFound
from warren.domain.records import Scope
from warren.domain.values import Storage

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from warren.core.agent.client import AgentClient
    from warren.core.agent.files import Content
    from warren.core.agent.values import Match
    from warren.core.audit.log import Audit
    from warren.core.sandboxes.sandboxes import Sandboxes
    from warren.domain.records import Caller
    from warren.domain.values import Entry

    Check = Callable[[Entry | None], None]
    """Inspects the existing entry, or None, and raises where it may not be changed."""

T = TypeVar("T")

WORKSPACE = "/workspace"
_MAX_NOTED = 1024
_TRANSFERS = frozenset({"read", "write", "pack", "unpack"})
_WRITES = frozenset({"write", "unpack", "edit"})


class Files:
    """The files of all sandboxes. Methods may raise NotFound, Conflict, InvalidRequest, TooLarge and SandboxLost."""

    def __init__(self, sandboxes: Sandboxes, audit: Audit, observer: Counters | None = None) -> None:
        self._sandboxes = sandboxes
        self._audit = audit
        self._observer = observer or Counters()
        self.transfers = OwnerLimiter(self._observer)
        self._turns = KeyedLock()

    async def stat(self, caller: Caller, sandbox_id: str, path: str, *, follow: bool = True) -> Entry:
        """Describe a file or folder, or with `follow=False` a link itself."""
        async with self._doing("stat", caller, sandbox_id, Scope.READ, path=path) as (agent, _):
            return await agent.stat(_inside(path), follow=follow)

    async def list(
        self,
        caller: Caller,
        sandbox_id: str,
        path: str = ".",
        *,
        recursive: bool = False,
        limit: int = 10_000,
        hidden: bool = True,
    ) -> tuple[tuple[Entry, ...], bool]:
        """List a folder by path, and return whether the list is complete."""
        async with self._doing("list", caller, sandbox_id, Scope.READ, path=path) as (agent, noted):
            entries, complete = await agent.list(_inside(path), recursive=recursive, limit=limit, hidden=hidden)
            noted["entries"] = len(entries)
        return entries, complete

    @contextlib.asynccontextmanager
    async def read(
        self, caller: Caller, sandbox_id: str, path: str, offset: int = 0, length: int | None = None
    ) -> AsyncIterator[Content]:
        """Open a file for reading; the sandbox stays in use until it is closed."""
        async with self._doing("read", caller, sandbox_id, Scope.READ, path=path) as (agent, noted):
            content = await agent.open_file(_inside(path), offset, length)
            try:
                yield content
            finally:
                content.close()
                noted["bytes"] = content.sent
                self._observer.moved("out", content.sent)

    async def read_scratch(self, caller: Caller, sandbox_id: str, folder: str, path: str, limit: int) -> bytes:
        """Return a file that a program left below a folder of /tmp, and that its result lists."""
        where = f"{folder}/{path}"
        async with self._doing("read", caller, sandbox_id, Scope.READ, path=where) as (agent, noted):
            content = await agent.read_scratch(folder, path, limit)
            noted["bytes"] = len(content)
            self._observer.moved("out", len(content))
        return content

    async def empty_scratch(self, caller: Caller, sandbox_id: str, folders: Iterable[str]) -> None:
        """Empty folders of /tmp, before the next execution there."""
        async with self._sandboxes.use(caller, sandbox_id) as live:
            live.agent.empty_scratch(folders)

    async def write(
        self,
        caller: Caller,
        sandbox_id: str,
        path: str,
        content: bytes | AsyncIterable[bytes],
        *,
        mode: int = 0o644,
        create: str = "replace",
        parents: bool = True,
        check: Check | None = None,
    ) -> Entry:
        """Write a file, as a whole or not at all. `create` is replace, exclusive or append.

        `check` is called when all content has arrived: no other write of this service comes between.
        """
        async with (
            self._doing("write", caller, sandbox_id, Scope.RUN, path=path, create=create) as (agent, noted),
            contextlib.AsyncExitStack() as turn,
        ):

            async def take_turn() -> None:
                await turn.enter_async_context(self._turn(sandbox_id, path))
                await _ask(check, agent, path)

            # WHY not earlier: a slow sender would block all other writers of the file.
            counted = _Counted(content, take_turn)
            try:
                sync = self._is_persistent(sandbox_id)
                entry = await agent.write(_inside(path), counted, mode=mode, create=create, parents=parents, sync=sync)
            finally:
                noted["bytes"] = counted.size
                self._observer.moved("in", counted.size)
        return entry

    async def mkdir(self, caller: Caller, sandbox_id: str, path: str, *, parents: bool = True) -> Entry:
        """Create a folder."""
        async with self._doing("mkdir", caller, sandbox_id, Scope.RUN, path=path) as (agent, _):
            return await agent.mkdir(_inside(path), parents=parents)

    async def move(
        self, caller: Caller, sandbox_id: str, path: str, to: str, *, overwrite: bool = False, parents: bool = False
    ) -> Entry:
        """Rename a file or folder; with `parents`, create the folders above its new path first."""
        async with self._doing("move", caller, sandbox_id, Scope.RUN, path=path, to=to) as (agent, _):
            target = _inside(to)
            folder = target.rstrip("/").rpartition("/")[0]
            if parents and folder:
                await agent.stat(_inside(path), follow=False)
                await agent.mkdir(folder)
            return await agent.move(_inside(path), target, overwrite=overwrite)

    async def delete(
        self, caller: Caller, sandbox_id: str, path: str, *, recursive: bool = False, check: Check | None = None
    ) -> int:
        """Delete a file or folder; return the number of entries deleted. `check` is called as for a write."""
        async with (
            self._doing("delete", caller, sandbox_id, Scope.RUN, path=path) as (agent, noted),
            self._turn(sandbox_id, path),
        ):
            await _ask(check, agent, path)
            noted["deleted"] = deleted = await agent.delete(_inside(path), recursive=recursive)
        return deleted

    async def search(
        self,
        caller: Caller,
        sandbox_id: str,
        path: str = ".",
        *,
        name: str | None = None,
        text: str | None = None,
        regex: str | None = None,
        limit: int = 1000,
    ) -> tuple[tuple[Match, ...], bool]:
        """Find files by a glob, and lines by a text or regular expression; return whether the result is complete."""
        async with self._doing("search", caller, sandbox_id, Scope.READ, path=path) as (agent, noted):
            matches, complete = await agent.search(_inside(path), name=name, text=text, regex=regex, limit=limit)
            noted["matches"] = len(matches)
        return matches, complete

    async def edit(
        self, caller: Caller, sandbox_id: str, path: str, command: str, do: Callable[[AgentClient, str], Awaitable[T]]
    ) -> T:
        """View or edit a text file: `do` gets the agent, and the path as the agent knows it.

        `command` is for the audit record; viewing needs the scope to read only.
        """
        scope = Scope.READ if command == "view" else Scope.RUN
        async with (
            self._doing("edit", caller, sandbox_id, scope, path=path, command=command) as (agent, _),
            self._turn(sandbox_id, path),
        ):
            return await do(agent, _inside(path))

    @contextlib.asynccontextmanager
    async def pack(
        self,
        caller: Caller,
        sandbox_id: str,
        path: str = ".",
        format: str = "tar",  # noqa: A002 - the wire's word
    ) -> AsyncIterator[AsyncIterable[bytes]]:
        """Pack a folder as tar, tar.gz or zip; the sandbox stays in use until the archive is closed."""
        async with (
            self._doing("pack", caller, sandbox_id, Scope.READ, path=path, format=format) as (agent, noted),
            contextlib.aclosing(agent.pack(_inside(path), format)) as pieces,
        ):
            counted = _Counted(pieces)
            try:
                yield counted
            finally:
                noted["bytes"] = counted.size
                self._observer.moved("out", counted.size)

    async def unpack(
        self,
        caller: Caller,
        sandbox_id: str,
        path: str,
        source: bytes | AsyncIterable[bytes],
        format: str = "tar",  # noqa: A002 - the wire's word
    ) -> int:
        """Unpack an archive into a folder, as a whole or not at all; return the number of its members."""
        async with self._doing("unpack", caller, sandbox_id, Scope.RUN, path=path, format=format) as (agent, noted):
            counted = _Counted(source)
            try:
                sync = self._is_persistent(sandbox_id)
                noted["entries"] = entries = await agent.unpack(_inside(path), counted, format, sync=sync)
            finally:
                noted["bytes"] = counted.size
                self._observer.moved("in", counted.size)
        return entries

    def _is_persistent(self, sandbox_id: str) -> bool:
        """Whether what is uploaded to a sandbox in use must be on the disk before the response.

        WHY: a write into the page cache succeeds on a disk that is full, and is lost later, with no report of it.
        """
        live = self._sandboxes.transitions.live_sandboxes.get(sandbox_id)
        return live is not None and live.sandbox.storage is Storage.PERSISTENT

    def _turn(self, sandbox_id: str, path: str) -> AbstractAsyncContextManager[None]:
        """Lock a file for changes."""
        return self._turns.hold((sandbox_id, posixpath.normpath(_inside(path))))

    @contextlib.asynccontextmanager
    async def _doing(
        self, verb: str, caller: Caller, sandbox_id: str, scope: Scope, **given: str
    ) -> AsyncIterator[tuple[AgentClient, dict[str, Any]]]:
        """Hold the sandbox during an operation, and audit its outcome before the response."""
        if scope is Scope.READ:
            self._audit.check_room()
        else:
            self._audit.check_writable()
        details: dict[str, Any] = {key: _printable(value) for key, value in given.items()}
        async with (
            self._audit.operation(
                caller, f"file.{verb}", unfinished="abandoned", sandbox_id=sandbox_id, **details
            ) as noted,
            contextlib.AsyncExitStack() as held,
        ):
            if verb in _WRITES and scope is Scope.RUN:
                self._sandboxes.space.check()
            if verb in _TRANSFERS:
                await held.enter_async_context(self.transfers.one(caller.principal.owner))
            live = await held.enter_async_context(self._sandboxes.use(caller, sandbox_id, scope))
            yield live.agent, noted


class _Counted:
    """A stream of content that counts its bytes."""

    def __init__(
        self, source: bytes | AsyncIterable[bytes], before_end: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._source = source
        self._before_end = before_end
        self.size = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if isinstance(self._source, bytes):
            self.size = len(self._source)
            yield self._source
        else:
            async for piece in self._source:
                self.size += len(piece)
                yield piece
        if self._before_end is not None:
            await self._before_end()


async def _ask(check: Check | None, agent: AgentClient, path: str) -> None:
    """Call `check` with the current entry. Raises what it raises."""
    if check is None:
        return
    try:
        entry = await agent.stat(_inside(path))
    except NotFound:
        check(None)
    else:
        check(entry)


def _inside(path: str) -> str:
    """Make a path under `/workspace` relative: on some engines the workspace has another name inside."""
    return path[len(WORKSPACE) :].lstrip("/") or "." if f"{path}/".startswith(f"{WORKSPACE}/") else path or "."


def _printable(text: str) -> str:
    """Make a name printable for the audit record, whatever its bytes."""
    return text[:_MAX_NOTED].encode("utf-8", "backslashreplace").decode()


def pack_files(files: Mapping[str, bytes]) -> bytes:
    """Pack contents by their paths into a tar that the agent unpacks."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()
