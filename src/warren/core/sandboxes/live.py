"""Live sandboxes of this process: record, agent and current users of each, and deletions in progress. No I/O."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import anyio

from warren.domain.errors import SandboxLost
from warren.domain.lifecycle import Status
from warren.domain.values import Handle, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from warren.core.agent.client import AgentClient
    from warren.domain.records import Owner, Sandbox

    Going = tuple[Owner, anyio.Event]
    """The owner, and an event that is set once the sandbox is gone."""


class LiveSandbox:
    """One sandbox as this process holds it. A change of its status needs its lock."""

    __slots__ = (
        *("_active_at", "_agent", "_kernels", "_lost_kernels", "_users"),
        *("is_gone", "lock", "sandbox", "touched_at", "used_at"),
    )

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        """As the store has it, but for `active_at` and `executions`."""
        self.lock = anyio.Lock(fast_acquire=True)
        self.used_at = time.monotonic()
        """When it was last used, by the monotonic clock."""
        self.touched_at = self.used_at
        """The last use that the store knows of, by the same clock."""
        self.is_gone = False
        """True once its record is removed: a task that waited for the lock must not go on."""
        self._agent: AgentClient | None = None
        self._kernels: set[str] = set()
        """Kernels that have run a cell, as far as this process knows."""
        self._lost_kernels: set[str] = set()
        """Kernels whose variables are gone with the agent, as no result has said yet."""
        self._users = 0
        self._active_at = sandbox.active_at

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self.sandbox.id

    @property
    def handle(self) -> Handle:
        """The engine's reference to it."""
        return Handle(self.sandbox.engine, self.sandbox.id)

    @property
    def agent(self) -> AgentClient:
        """The connection to its agent. Raises SandboxLost when there is none."""
        if self._agent is None:
            raise SandboxLost(f"sandbox {self.id} is {self.sandbox.status}: there is no connection to it")
        return self._agent

    @agent.setter
    def agent(self, agent: AgentClient | None) -> None:
        self._agent = agent

    @property
    def lost_agent(self) -> AgentClient | None:
        """Its last connection, if that broke and no other has replaced it."""
        return self._agent if self._agent is not None and self._agent.lost is not None else None

    @property
    def is_ready(self) -> bool:
        """Whether it runs and its agent is connected."""
        return self._agent is not None and self._agent.lost is None and self.sandbox.status is Status.RUNNING

    @property
    def is_busy(self) -> bool:
        """Whether a request or an execution uses it now."""
        return self._users > 0

    @property
    def active_at(self) -> float:
        """When it was last used, in seconds since the epoch."""
        return time.time() if self._users else self._active_at

    def lose_kernels(self) -> None:
        """Note that the agent is lost, and the variables of all kernels with it."""
        known = () if self._agent is None else self._agent.hello.kernels
        self._lost_kernels |= self._kernels.union(known)
        self._kernels.clear()

    def note_cell(self, kernel: str, state: State) -> State:
        """Note that a cell ended with this state of its kernel; returns LOST if the variables were lost before it."""
        was_lost = kernel in self._lost_kernels
        self._lost_kernels.discard(kernel)
        if state is State.LOST:
            self._kernels.discard(kernel)
            return state
        self._kernels.add(kernel)
        return State.LOST if was_lost else state

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Keep the reaper away, and note the use: for a request, and for an execution that outlives its request."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self.touch()

    def touch(self) -> None:
        """Note a use that has just ended."""
        self.used_at, self._active_at = time.monotonic(), time.time()

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the lock for a step that is finished even if the caller is cancelled."""
        async with self.lock:
            with anyio.CancelScope(shield=True):
                yield


class PendingDeletes:
    """The sandboxes that are removed behind an answer, by id. A create that hits its quota waits for them."""

    def __init__(self) -> None:
        self._going: dict[str, Going] = {}
        self.patience_s = 5.0

    def add(self, sandbox_id: str, owner: Owner) -> None:
        """Add a sandbox that will be removed soon."""
        self._going[sandbox_id] = (owner, anyio.Event())

    @contextlib.contextmanager
    def removing(self, sandbox_id: str) -> Iterator[None]:
        """Mark a sandbox as gone after the body, which removes it."""
        try:
            yield
        finally:
            _, gone = self._going.pop(sandbox_id)
            gone.set()

    def look(self) -> tuple[Going, ...]:
        """Return the deletions in progress."""
        return tuple(self._going.values())

    async def wait(self, seen: tuple[Going, ...], whose: Owner | str | None) -> bool:
        """Wait for the deletions in progress now, or `seen` before, 5 seconds at most.

        Only those of an owner or a tenant count, or with None all. Returns False when there are none, so that nothing
        has changed.
        """
        awaited = [gone for owner, gone in {*seen, *self.look()} if whose in {owner, owner.tenant, None}]
        with anyio.move_on_after(self.patience_s):
            for gone in awaited:
                await gone.wait()
        return bool(awaited)
