"""A service's sandboxes without the rest of it: the real parts over the bare engine, and a way to die and come back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import anyio

from warren.core.audit.log import Audit
from warren.core.concurrency.admission import Admission
from warren.core.images.cache import ImageCache
from warren.core.images.catalog import Catalog
from warren.core.sandboxes.connections import AgentConnections
from warren.core.sandboxes.pool import SandboxPool
from warren.core.sandboxes.reaper import Reaper
from warren.core.sandboxes.recovery import recover
from warren.core.sandboxes.sandboxes import NewSandbox, Sandboxes
from warren.domain.records import AuditQuery, Caller, Principal, SandboxQuery, Scope
from warren.domain.values import ExecKind, ExecRequest, ExecResult, Storage, new_id
from warren.engines.bare.engine import BareEngine
from warren.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from warren.core.policy.policy import Policy
    from warren.core.sandboxes.live import LiveSandbox
    from warren.domain.records import Sandbox
    from warren.engines.base import Engine
    from warren.stores.base import Store

ANN = Caller(principal=Principal(subject="ann"), request_id="req_1")
BOB = Caller(principal=Principal(subject="bob"), request_id="req_2")
READER = Caller(principal=Principal(subject="ann", scope=Scope.READ), request_id="req_3")
ADMIN = Caller(principal=Principal(subject="root", scope=Scope.ADMIN), request_id="req_4")


class Estate:
    """Everything that sandboxes need, over one data folder."""

    def __init__(
        self,
        data_dir: str,
        images_dir: str,
        policy: Policy,
        engine: Engine | None = None,
        store: Store | None = None,
    ) -> None:
        """Without a store, one in a file of the data folder: for what has to survive a service."""
        self.data_dir = data_dir
        self.policy = policy
        self.engine: Engine = BareEngine(data_dir, allow=True) if engine is None else engine
        self.store: Store = SqliteStore(data_dir) if store is None else store
        self.audit = Audit(self.store, policy)
        self.connections = AgentConnections(self.engine)
        self.images = ImageCache(Catalog(images_dir))
        self.pool = SandboxPool(self.engine, self.store, self.connections, self.images, policy)
        self.sandboxes = Sandboxes(
            engine=self.engine,
            store=self.store,
            connections=self.connections,
            pool=self.pool,
            images=self.images,
            admission=Admission(self.store, policy),
            audit=self.audit,
            policy=policy,
        )
        self.transitions = self.sandboxes.transitions
        self.reaper = Reaper(self.transitions, self.store, self.audit, policy)
        self.adopted: list[str] = []
        self.recovered: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Estate]:
        """Recover, serve, and let go of everything; sandboxes live on."""
        await self.store.open()
        await self.engine.open()
        try:
            async with self.connections:
                self.recovered = await recover(self.transitions, self.engine, self.store, self._adopt)
                yield self
                await self.audit.flush()
        finally:
            with anyio.CancelScope(shield=True):
                await self.engine.close()
                await self.store.close()

    async def _adopt(self, live: LiveSandbox) -> None:
        self.adopted.append(live.id)

    async def create(self, caller: Caller = ANN, **fields: Any) -> Sandbox:
        sandbox, _ = await self.sandboxes.create(caller, NewSandbox(**fields))
        return sandbox

    async def shell(self, sandbox_id: str, command: str, caller: Caller = ANN) -> ExecResult:
        return await self._run(caller, sandbox_id, ExecRequest(id=new_id("exe"), kind=ExecKind.SHELL, code=command))

    async def cell(self, sandbox_id: str, code: str, caller: Caller = ANN) -> ExecResult:
        return await self._run(caller, sandbox_id, ExecRequest(id=new_id("exe"), code=code))

    async def _run(self, caller: Caller, sandbox_id: str, request: ExecRequest) -> ExecResult:
        async with self.sandboxes.use(caller, sandbox_id) as live:
            return await live.agent.run(request)

    async def handles(self) -> set[str]:
        return {handle.sandbox_id async for handle in self.engine.handles()}

    async def rows(self) -> dict[str, Sandbox]:
        return {sandbox.id: sandbox for sandbox in (await self.store.list(SandboxQuery(limit=1000))).items}

    async def audited(self, action: str) -> list[str]:
        """Return the outcomes of an action, oldest first."""
        await self.audit.flush()
        page = await self.store.audit(AuditQuery(action=action))
        return [row.entry.outcome for row in reversed(page.items)]

    def kill_agent(self, sandbox_id: str, number: int = signal.SIGKILL) -> None:
        """End an agent of the bare engine as an accident would, or send it another signal."""
        with open(os.path.join(self.data_dir, "bare", sandbox_id, "record.json"), encoding="utf-8") as record:
            os.kill(json.load(record)["pid"], number)

    async def settle(self) -> None:
        """Wait until no task works on any sandbox, and no broken connection is left unexamined."""
        await wait_until(
            lambda: not any(p.lock.locked() or p.lost_agent for p in self.transitions.live_sandboxes.values())
        )

    async def clean(self) -> None:
        async for handle in self.engine.handles():
            await self.engine.destroy(handle)


async def wait_until(condition: Callable[[], object]) -> None:
    """Look again and again, for at most a minute."""
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - the tested code sets no event
            await anyio.sleep(0.005)


EPHEMERAL = Storage.EPHEMERAL
