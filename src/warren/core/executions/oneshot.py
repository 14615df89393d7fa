"""One-shots: a fresh sandbox, files in, one execution, the changed files out, and the sandbox is removed.

Only the audit entries of a one-shot stay: the records of its sandbox and of its execution go with the sandbox.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import anyio

from warren.core.executions.executions import NewExecution
from warren.core.files.files import pack_files
from warren.core.sandboxes.sandboxes import NewSandbox
from warren.domain.errors import Error, InvalidRequest, NotFound, TooLarge
from warren.domain.values import MIB, Cause, Storage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from warren.core.agent.client import AgentClient
    from warren.core.executions.executions import Executions
    from warren.core.sandboxes.live import LiveSandbox
    from warren.core.sandboxes.sandboxes import Sandboxes
    from warren.domain.egress import Egress
    from warren.domain.gpus import GpuRequest
    from warren.domain.records import Caller, Execution
    from warren.domain.values import ExecResult, Limits

MAX_FILES_IN = 1000
ORPHAN_S = 60.0
"""Idle time after which the reaper removes the sandbox of a one-shot that a crash interrupted."""
_REMOVERS = 4
_MAX_REMOVALS = 32
"""Sandboxes that wait to be removed; beyond it, a one-shot waits with its answer."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneShot:
    """An execution, its sandbox, the files to put in, and how much to give back."""

    request: NewExecution = field(default_factory=NewExecution)
    image: str | None = None
    limits: Limits | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    egress: Egress | None = None
    gpus: GpuRequest | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    """By path, relative to the workspace."""
    outputs: tuple[str, ...] = ()
    """The files to give back; empty: all that changed."""
    max_files: int = 100
    """Changed files to give back."""
    max_bytes: int = 16 * MIB
    """Of all of them together."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that the execution created or modified."""

    path: str
    action: str
    content: bytes


@dataclass(frozen=True, slots=True)
class OneShotResult:
    """The execution with its result, and its output files."""

    execution: Execution
    files: tuple[OutputFile, ...]
    files_complete: bool
    """Whether every created or modified file is among them."""


class OneShots:
    """Runs one-shots. Removes their sandboxes behind the answer, inside `async with`; leaving waits for that."""

    def __init__(self, sandboxes: Sandboxes, executions: Executions) -> None:
        self._sandboxes = sandboxes
        self._executions = executions

    async def __aenter__(self) -> Self:
        self._send, self._receive = anyio.create_memory_object_stream[tuple["Caller", str]](_MAX_REMOVALS)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        for _ in range(_REMOVERS):
            self._tasks.start_soon(self._remove)
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self._send.close()
        self._tasks.cancel_scope.shield = True
        await self._tasks.__aexit__(None, None, None)
        self._receive.close()

    async def run(self, caller: Caller, shot: OneShot) -> OneShotResult:
        """Run something in a sandbox of its own. If the caller is cancelled it is ended, and audited."""
        if shot.request.background or shot.request.idempotency_key is not None:
            raise InvalidRequest("a one-shot keeps nothing: it has neither a background nor an idempotency key")
        if len(shot.files) > MAX_FILES_IN:
            raise TooLarge(f"a one-shot takes at most {MAX_FILES_IN} files: pack them into an archive")
        new = NewSandbox(
            image=shot.image, limits=shot.limits, env=shot.env, egress=shot.egress, gpus=shot.gpus, single_use=True
        )
        async with self.fresh(caller, new) as live:
            await _put_files(live.agent, shot.files)
            # Nothing runs after it, so its variables need no checkpoint.
            request = dataclasses.replace(shot.request, checkpoint=False)
            execution = await self._executions.run(caller, live.id, request, is_kept=False)
            assert execution.result is not None
            if shot.outputs and execution.result.cause is not Cause.LOST:
                files, complete = await _get_outputs(live.agent, shot)
            else:
                files, complete = await _get_files(live.agent, execution.result, shot)
        return OneShotResult(execution, files, complete)

    @contextlib.asynccontextmanager
    async def fresh(self, caller: Caller, new: NewSandbox) -> AsyncIterator[LiveSandbox]:
        """Create an ephemeral sandbox for the body alone, and keep it in use all that time."""
        new = dataclasses.replace(new, storage=Storage.EPHEMERAL, idle_timeout_s=ORPHAN_S)
        sandbox, _ = await self._sandboxes.create(caller, new)
        try:
            async with self._sandboxes.use(caller, sandbox.id) as live:
                yield live
        finally:
            self._sandboxes.transitions.pending_deletes.add(sandbox.id, sandbox.owner)
            # When the removers have ended, the reaper of the next service removes it.
            with anyio.CancelScope(shield=True), contextlib.suppress(anyio.ClosedResourceError):
                await self._send.send((caller, sandbox.id))

    async def _remove(self) -> None:
        async for caller, sandbox_id in self._receive:
            with self._sandboxes.transitions.pending_deletes.removing(sandbox_id):
                try:
                    await self._sandboxes.delete(caller, sandbox_id)
                except NotFound:
                    pass  # It was lost, and is gone already.
                except Error as error:
                    _log.warning("oneshot.remove_failed", extra={"sandbox_id": sandbox_id, "reason": error.code})


async def _put_files(agent: AgentClient, files: Mapping[str, bytes]) -> None:
    if len(files) <= 1:
        for path, content in files.items():
            await agent.write(path, content)
        return
    await agent.unpack(".", pack_files(files))


async def _get_outputs(agent: AgentClient, shot: OneShot) -> tuple[tuple[OutputFile, ...], bool]:
    found: list[OutputFile] = []
    complete, room = True, shot.max_bytes
    for path in shot.outputs:
        try:
            content = await agent.read_bytes(path, room)
        except TooLarge:
            complete = False
            continue
        except Error:
            continue  # Not made, or not a file.
        room -= len(content)
        found.append(OutputFile(path, "created", content))
    return tuple(found), complete


async def _get_files(agent: AgentClient, result: ExecResult, shot: OneShot) -> tuple[tuple[OutputFile, ...], bool]:
    found: list[OutputFile] = []
    complete, room = result.files_changed_complete, shot.max_bytes
    for change in result.files_changed:
        if change.action == "deleted":
            continue
        content: bytes | None = None
        # Left out: what does not fit, is not a file, or was removed meanwhile by a process that still runs.
        if len(found) < shot.max_files and change.size <= room:
            with contextlib.suppress(Error):
                content = await agent.read_bytes(change.path, room)
        if content is None:
            complete = False
            continue
        room -= len(content)
        found.append(OutputFile(change.path, change.action, content))
    return tuple(found), complete
