"""Jobs: one execution with stored files in and stored files out, in a sandbox of its own or an existing one."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from warren.core.files.files import pack_files
from warren.core.sandboxes.creation import NewSandbox
from warren.domain.errors import Error, InvalidRequest, NotFound
from warren.domain.values import MIB

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from warren.core.agent.client import AgentClient
    from warren.core.executions.executions import Executions, NewExecution
    from warren.core.executions.oneshot import OneShots
    from warren.core.executions.supervisor import Running
    from warren.core.files.stored import StoredFiles
    from warren.core.sandboxes.live import LiveSandbox
    from warren.core.sandboxes.sandboxes import Sandboxes
    from warren.domain.records import Caller, Execution, StoredFile
    from warren.domain.values import Event, FileChange, Limits

_PACKED_BYTES = 4 * MIB
"""Inputs that are this small together go in as one archive."""
_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An execution, its sandbox, and which of its files to keep."""

    request: NewExecution
    sandbox_id: str | None = None
    """None: one of its own, which is removed afterwards."""
    inputs: Mapping[str, StoredFile] = field(default_factory=dict)
    """By path, relative to the workspace. Put into a sandbox of its own; an existing one has them already."""
    image: str | None = None
    limits: Limits | None = None
    ttl_s: float
    """How long its files are kept."""
    hidden: frozenset[str] = frozenset()
    """Paths of files that are never kept."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """The execution with its result, and the files that it created or modified, by path."""

    execution: Execution
    files: tuple[tuple[str, StoredFile], ...]
    unkept: tuple[str, ...]
    """Paths of files that could not be kept."""
    is_complete: bool
    """False when the workspace has more files than are scanned for changes."""


class Jobs:
    """Runs jobs."""

    def __init__(
        self, sandboxes: Sandboxes, executions: Executions, oneshots: OneShots, stored_files: StoredFiles
    ) -> None:
        self._sandboxes = sandboxes
        self._executions = executions
        self._oneshots = oneshots
        self._stored_files = stored_files

    async def run(self, caller: Caller, job: Job) -> JobResult:
        """Run a job. If the caller is cancelled it is ended, and audited."""
        async with self._live(caller, job) as live:
            is_kept = job.sandbox_id is not None
            execution = await self._executions.run(caller, live.id, job.request, is_kept=is_kept)
            return await self._collect(caller, live.agent, job, execution)

    @contextlib.asynccontextmanager
    async def follow(self, caller: Caller, job: Job) -> AsyncIterator[FollowedJob]:
        """Run a job whose output is read while it runs. Leaving the body ends it."""
        async with (
            self._live(caller, job) as live,
            await self._executions.begin(caller, live.id, job.request) as running,
        ):
            yield FollowedJob(self, caller, live, job, running)

    async def stage(self, caller: Caller, sandbox_id: str, inputs: Mapping[str, StoredFile]) -> None:
        """Put stored files into a sandbox."""
        if inputs:
            async with self._sandboxes.use(caller, sandbox_id) as live:
                await self._put(caller, live, inputs)

    @contextlib.asynccontextmanager
    async def _live(self, caller: Caller, job: Job) -> AsyncIterator[LiveSandbox]:
        if job.sandbox_id is not None:
            async with self._sandboxes.use(caller, job.sandbox_id) as live:
                yield live
            return
        async with self._oneshots.fresh(caller, NewSandbox(image=job.image, limits=job.limits)) as live:
            await self._put(caller, live, job.inputs)
            yield live

    async def _put(self, caller: Caller, live: LiveSandbox, inputs: Mapping[str, StoredFile]) -> None:
        if len(inputs) > 1 and sum(file.size for file in inputs.values()) <= _PACKED_BYTES:
            await live.agent.unpack(".", await self._pack(caller, live, inputs))
            return
        for path, file in inputs.items():
            async with self._stored_files.read(caller, file, sandbox_id=live.id) as content:
                await live.agent.write(path, content)

    async def _pack(self, caller: Caller, live: LiveSandbox, inputs: Mapping[str, StoredFile]) -> bytes:
        files: dict[str, bytes] = {}
        for path, file in inputs.items():
            async with self._stored_files.read(caller, file, sandbox_id=live.id) as content:
                files[path] = b"".join([piece async for piece in content])
        return pack_files(files)

    async def _collect(self, caller: Caller, agent: AgentClient, job: Job, execution: Execution) -> JobResult:
        result = execution.result
        assert result is not None
        changed = [one for one in result.files_changed if one.action != "deleted" and one.path not in job.hidden]
        kept: dict[str, StoredFile] = {}
        unkept: set[str] = set()
        slots = anyio.Semaphore(_AT_ONCE)

        async def keep(change: FileChange) -> None:
            async with slots:
                try:
                    file = await self._keep(caller, agent, job, change)
                except Error:
                    unkept.add(change.path)
                    return
                if file is not None:
                    kept[change.path] = file

        async with anyio.create_task_group() as tasks:
            for change in changed:
                tasks.start_soon(keep, change)
        return JobResult(execution, tuple(sorted(kept.items())), tuple(sorted(unkept)), result.files_changed_complete)

    async def _keep(self, caller: Caller, agent: AgentClient, job: Job, change: FileChange) -> StoredFile | None:
        """Keep a file, unless it is gone, is not a file, or equals its input."""
        try:
            content = await agent.open_file(change.path, follow=False)
        except (NotFound, InvalidRequest):
            return None
        try:
            before = job.inputs.get(change.path)
            await self._stored_files.check_room(caller.principal.owner, content.length)
            return await self._stored_files.add(
                caller, change.path, content, ttl_s=job.ttl_s, unless=None if before is None else before.sha256
            )
        finally:
            content.close()


class FollowedJob:
    """A job that runs: its events, and at the end its files."""

    def __init__(self, jobs: Jobs, caller: Caller, live: LiveSandbox, job: Job, running: Running) -> None:
        self._jobs = jobs
        self._caller = caller
        self._live = live
        self._job = job
        self._running = running

    def events(self) -> AsyncGenerator[Event, None]:
        """Yield its events; the result is the last. Close it if you leave early."""
        return self._running.events()

    async def finish(self) -> JobResult:
        """Wait for its end, and keep its files."""
        execution = await self._running.wait()
        return await self._jobs._collect(self._caller, self._live.agent, self._job, execution)  # noqa: SLF001 - of this module
