"""An estate in which code runs: executions, kernels and one-shots over the real parts, and a caller's shorthand."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import anyio

from unit.core.estate import ANN, Estate
from warren.core.concurrency.admission import Admission
from warren.core.executions.executions import Executions, NewExecution
from warren.core.executions.kernels import Kernels
from warren.core.executions.oneshot import OneShots
from warren.core.policy.policy import Policy
from warren.core.sandboxes.recovery import recover
from warren.domain.errors import NotFound
from warren.domain.records import AuditQuery
from warren.domain.values import Event, ExecKind, ExecResult
from warren.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from warren.domain.records import AuditEntry, Caller, Execution
    from warren.engines.base import Engine
    from warren.stores.base import Store

    Tell = Callable[..., None]


class Workshop(Estate):
    """Everything that executions need, over one data folder."""

    def __init__(
        self,
        data_dir: str,
        images_dir: str,
        policy: Policy,
        engine: Engine | None = None,
        store: Store | None = None,
        *,
        records: Store | None = None,
    ) -> None:
        super().__init__(data_dir, images_dir, policy, engine, records)
        self.executions = Executions(
            store=store or self.store,
            sandboxes=self.sandboxes,
            connections=self.connections,
            admission=Admission(self.store, policy),
            audit=self.audit,
            policy=policy,
        )
        self.kernels = Kernels(self.sandboxes, self.audit)
        self.oneshots = OneShots(self.sandboxes, self.executions)
        self.transitions.before_end = self.executions.end_all

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[Workshop]:
        """Recover and serve; sandboxes live on."""
        await self.store.open()
        await self.engine.open()
        try:
            async with self.connections, self.executions, self.oneshots:
                await recover(self.transitions, self.engine, self.store, self.executions.adopt)
                await self.executions.lose_rest()
                yield self
            await self.audit.flush()
        finally:
            with anyio.CancelScope(shield=True):
                await self.engine.close()
                await self.store.close()

    async def run(self, sandbox_id: str, code: str, caller: Caller = ANN, **fields: Any) -> ExecResult:
        """Run a cell and return its result."""
        execution = await self.executions.run(caller, sandbox_id, NewExecution(code=code, **fields))
        assert execution.result is not None
        return execution.result

    async def finished(self, execution_id: str) -> Execution:
        """Wait until an execution has a result that is on disk."""
        with anyio.fail_after(60):
            while True:
                execution = await self.store.execution(execution_id)
                if execution is not None and execution.result is not None:
                    return execution
                await anyio.sleep(0.005)

    async def finishes(self, execution_id: str) -> list[AuditEntry]:
        """Return the audit entries of the end of an execution."""
        await self.executions.flush()
        page = await self.store.audit(AuditQuery(execution_id=execution_id, action="execution.finish"))
        return [row.entry for row in page.items]


SHELL = ExecKind.SHELL


def command(code: str, **fields: object) -> NewExecution:
    """Build a request for a shell command."""
    return dataclasses.replace(NewExecution(kind=SHELL, code=code), **fields)  # type: ignore[arg-type]


async def first_output(shop: Workshop, sandbox_id: str, execution_id: str) -> Event:
    """Wait until an execution has written something."""
    async with contextlib.aclosing(await shop.executions.events(ANN, sandbox_id, execution_id)) as events:
        return await anext(events)


async def wait_for_file(shop: Workshop, sandbox_id: str, path: str) -> None:
    """Wait until a file of a workspace is there."""
    async with shop.sandboxes.use(ANN, sandbox_id) as live:
        with anyio.fail_after(60):
            while True:
                with contextlib.suppress(NotFound):
                    await live.agent.stat(path)
                    return
                await anyio.sleep(0.01)


def work(
    data_dir: str,
    images_dir: str,
    story: Callable[[Workshop], Awaitable[None]],
    records: Store | None = None,
    **choices: Any,
) -> None:
    """Tell a story in a workshop of its own, and leave nothing of it."""

    async def tell() -> None:
        shop = Workshop(data_dir, images_dir, Policy(image="python", **choices), records=records or MemoryStore())
        with anyio.fail_after(60):
            try:
                async with shop.working():
                    await story(shop)
            finally:
                with anyio.CancelScope(shield=True):
                    await shop.clean()

    anyio.run(tell)
