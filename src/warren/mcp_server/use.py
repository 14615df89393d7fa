"""One use of a tool: its caller, its sandbox, its progress."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from warren.core.sandboxes.sandboxes import NewSandbox
from warren.domain.egress import Egress, EgressMode
from warren.domain.errors import Error, NotFound, SandboxLost
from warren.domain.gpus import GpuRequest
from warren.domain.lifecycle import Status
from warren.domain.values import Storage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import TypeVar

    from mcp.server.context import ServerRequestContext

    from warren.core.executions.executions import NewExecution, Running
    from warren.core.packages.install import Installed, NewInstall
    from warren.core.service import Service
    from warren.domain.records import Caller, Sandbox
    from warren.domain.values import Event, ExecResult
    from warren.settings import Settings

    T = TypeVar("T")

SESSION_HEADER = "warren-session"
"""Names the sandbox of calls without `session_id`."""
EPHEMERAL_HEADER = "warren-ephemeral"
"""`true`: that sandbox is ephemeral."""
CALLER = "mcp_caller"
"""The key of the caller in a request's state."""
EVERYBODYS = "default"
"""The sandbox of a principal that names no other."""
_PREFIX = "mcp/"
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TICK_S = 1.0
_LINE_CHARS = 200
_RESUMED = (
    "The sandbox had been stopped because it was idle: its files are there, the variables of run_python are gone."
)


def session_key(name: str) -> str:
    """Build the session key of a sandbox from a client's name for it; different names give different keys."""
    if _PLAIN.fullmatch(name):
        return _PREFIX + name
    return f"{_PREFIX}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


@dataclass(frozen=True, slots=True)
class CurrentSandbox:
    """The sandbox of a call, and a note about it."""

    id: str
    note: str = ""
    """For the model."""


class Use:
    """The context of a tool. It acts as the caller, through the same use cases as every other API."""

    def __init__(self, service: Service, settings: Settings, context: ServerRequestContext[Any, Any]) -> None:
        assert context.request is not None
        self.service = service
        self.settings = settings
        self._context = context
        self._headers = context.request.headers
        self.caller: Caller = context.request.scope["state"][CALLER]
        self._last_line = ""

    def key(self, session_id: str | None) -> str:
        """Return the session key: of the named sandbox, else the client's, else the session's or principal's."""
        return session_key(session_id or self._default())

    def _default(self) -> str:
        session = self._headers.get("mcp-session-id") if self.settings.mcp.sandbox_per_session else None
        return self._headers.get(SESSION_HEADER) or (f"session-{session}" if session else EVERYBODYS)

    def _is_kept(self, session_id: str | None) -> bool:
        """Whether files survive an idle stop: not in the sandbox of one MCP session."""
        if session_id:
            return True
        if self._headers.get(SESSION_HEADER):
            return bool(self._headers.get(EPHEMERAL_HEADER) != "true")
        return not self._default().startswith("session-")

    async def find(self, session_id: str | None) -> Sandbox:
        """Return the sandbox, without creating one. Raises NotFound."""
        try:
            return await self.service.sandboxes.find(self.caller, self.key(session_id))
        except NotFound:
            raise NotFound("There is no sandbox yet: run_python, run_bash and write_file make one.") from None

    async def place(self, session_id: str | None) -> CurrentSandbox:
        """Return the sandbox; create it if there is none."""
        try:
            found = await self.service.sandboxes.find(self.caller, self.key(session_id))
        except NotFound:
            sandbox, _ = await self.service.sandboxes.create(self.caller, self._new(session_id))
            return CurrentSandbox(sandbox.id)
        return CurrentSandbox(found.id, _RESUMED if found.status is Status.STOPPED else "")

    def _new(self, session_id: str | None) -> NewSandbox:
        chosen = self.settings.mcp
        return NewSandbox(
            image=chosen.image or None,
            storage=Storage.PERSISTENT if self._is_kept(session_id) else Storage.EPHEMERAL,
            session_key=self.key(session_id),
            egress=self.egress,
            gpus=GpuRequest.parse(chosen.gpus),
            metadata={"dialect": "mcp"},
            idle_timeout_s=chosen.idle_timeout_s,
        )

    @property
    def egress(self) -> Egress:
        """The egress of new sandboxes: the operator's choice, within the tenant's limit."""
        chosen = Egress(mode=EgressMode(self.settings.mcp.egress))
        return self.service.policy.lower_egress(self.caller.principal.tenant, chosen)

    async def within(self, session_id: str | None, work: Callable[[CurrentSandbox], Awaitable[T]]) -> T:
        """Do something in the sandbox. One that was deleted meanwhile, because it was idle, is created again once."""
        place = await self.place(session_id)
        try:
            return await work(place)
        except (NotFound, SandboxLost):
            with contextlib.suppress(NotFound):
                found = await self.service.sandboxes.find(self.caller, self.key(session_id))
                if found.id == place.id and found.status in {Status.RUNNING, Status.STOPPED}:
                    raise
            return await work(await self.place(session_id))

    @property
    def wants_progress(self) -> bool:
        """Whether the client asked for progress."""
        meta: Any = self._context.meta or {}
        return "progress_token" in meta or "progressToken" in meta

    async def run(self, sandbox_id: str, new: NewExecution) -> ExecResult:
        """Run something to its end. A cancelled call ends it."""
        executions = self.service.executions
        if not self.wants_progress:
            execution = await executions.run(self.caller, sandbox_id, new)
        else:
            async with await executions.begin(self.caller, sandbox_id, new) as running:
                await self._tell_until_done(running)
                execution = await running.wait()
        assert execution.result is not None
        return execution.result

    def count_refused(self, sandbox_id: str) -> int:
        """Return how many connections of a sandbox were refused or failed so far."""
        policies = self.service.egress.policies
        return policies.refused(sandbox_id)[0] + policies.failed(sandbox_id)[0]

    async def install(self, sandbox_id: str, new: NewInstall) -> Installed:
        """Install packages. Raises Error."""

        async def hear(event: Event) -> None:
            self.hear(event.data)

        async with self.ticking():
            return await self.service.packages.install(self.caller, sandbox_id, new, hear)

    @contextlib.asynccontextmanager
    async def ticking(self) -> AsyncIterator[None]:
        """Report progress to the client during a block; exceptions leave it without a task group's wrapper."""
        ticking = asyncio.get_running_loop().create_task(self._tick())
        try:
            yield
        finally:
            ticking.cancel()

    async def _tell_until_done(self, running: Running) -> None:
        async with self.ticking(), anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, running)
            await running.finished.wait()
            tasks.cancel_scope.cancel()

    async def _listen(self, running: Running) -> None:
        with contextlib.suppress(Error):
            async with contextlib.aclosing(running.events()) as events:
                async for event in events:
                    if event.kind in {"stdout", "stderr"}:
                        self.hear(event.data)

    def hear(self, output: bytes) -> None:
        """Keep the last line of output, for progress."""
        lines = output[-4 * _LINE_CHARS :].decode("utf-8", "replace").split("\n")
        self._last_line = next((line.strip() for line in reversed(lines) if line.strip()), self._last_line)[
            :_LINE_CHARS
        ]

    async def _tick(self) -> None:
        """Report progress every second, with the last line of output."""
        begun = anyio.current_time()
        while True:
            await anyio.sleep(_TICK_S)
            seconds = round(anyio.current_time() - begun, 1)
            message = self._last_line or f"running for {seconds:g} s"
            try:
                await self._context.session.report_progress(seconds, message=message)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
