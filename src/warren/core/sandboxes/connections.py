"""Agent connections: one for each running sandbox, opened on first use, shared, and watched until it is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import anyio

from warren.core.agent.client import AgentClient
from warren.core.concurrency.keyed_lock import KeyedLock
from warren.domain.errors import EngineUnavailable, SandboxLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

    from warren.domain.values import Handle
    from warren.engines.base import Engine

    OnAgent = Callable[[str, AgentClient], Awaitable[None]]

_ATTEMPTS = 2
"""An agent that is about to close the connection of its last service may close ours by mistake; never twice."""


class AgentConnections:
    """The connections of this process, by sandbox id. Use it with `async with`: their tasks run in its own group."""

    def __init__(self, engine: Engine, on_lost: OnAgent | None = None) -> None:
        self.on_lost = on_lost
        """Called, in a task of ours, with each connection that was lost and not dropped. It must not raise."""
        self.on_open: list[OnAgent] = []
        """Called in turn with each new connection, before any caller gets it. They must not raise."""
        self._engine = engine
        self._connections: dict[str, AgentClient] = {}
        self._opening = KeyedLock()
        self._tasks: TaskGroup | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_raised: object) -> None:
        assert self._tasks is not None
        self._closed = True
        with anyio.CancelScope(shield=True):
            for sandbox_id in list(self._connections):
                await self.drop(sandbox_id)
        self._tasks.cancel_scope.cancel()
        # The body's exception is not handed over: a task group would wrap it, and callers catch it by its class.
        await self._tasks.__aexit__(None, None, None)

    async def get(self, handle: Handle) -> AgentClient:
        """Return the connection of a running sandbox, opening one where there is none. Raises SandboxLost."""
        agent = self.peek(handle.sandbox_id)
        if agent is not None:
            return agent
        async with self._opening.hold(handle.sandbox_id):
            try:
                return self.peek(handle.sandbox_id) or await self._keep(handle.sandbox_id, await self._open(handle))
            except SandboxLost:
                self._check_open()
                raise

    def peek(self, sandbox_id: str) -> AgentClient | None:
        """Return the connection of a sandbox if it is open."""
        agent = self._connections.get(sandbox_id)
        return None if agent is None or agent.lost is not None else agent

    async def drop(self, sandbox_id: str) -> None:
        """Close the connection of a sandbox, if there is one; the sandbox lives on."""
        agent = self._connections.pop(sandbox_id, None)
        if agent is not None:
            await agent.aclose()

    async def _open(self, handle: Handle) -> AgentClient:
        for attempt in range(_ATTEMPTS):
            self._check_open()
            assert self._tasks is not None, "use AgentConnections with `async with`"
            channel = await self._engine.connect(handle)
            try:
                agent = await AgentClient.open(channel, self._tasks)
            except SandboxLost:
                if attempt + 1 == _ATTEMPTS:
                    raise
                continue
            if agent.hello.sandbox_id == handle.sandbox_id:
                return agent
            await agent.aclose()
        raise SandboxLost(f"another sandbox answers in the place of {handle.sandbox_id}")

    async def _keep(self, sandbox_id: str, agent: AgentClient) -> AgentClient:
        assert self._tasks is not None
        try:
            for prepare in self.on_open:
                await prepare(sandbox_id, agent)
        except BaseException:
            # Half prepared it is of no use to the next caller.
            await agent.aclose()
            raise
        # WHY not before: a caller that comes meanwhile would get one that is not prepared.
        self._connections[sandbox_id] = agent
        self._tasks.start_soon(self._watch, sandbox_id, agent)
        return agent

    def _check_open(self) -> None:
        """Raise EngineUnavailable when we are closing: the sandbox is not lost, only not connected to any more."""
        if self._closed:
            raise EngineUnavailable("the service is stopping: it connects to no more sandboxes")

    async def _watch(self, sandbox_id: str, agent: AgentClient) -> None:
        await agent.wait_lost()
        if self._connections.get(sandbox_id) is not agent:
            return
        del self._connections[sandbox_id]
        if self.on_lost is not None and not self._closed:
            await self.on_lost(sandbox_id, agent)
