"""Kernels of a sandbox: list, create, restart, fork, roll back and delete them. Every change is audited."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from warren.core.executions.request import check_name
from warren.domain.errors import Conflict, InvalidRequest
from warren.domain.lifecycle import Status
from warren.domain.records import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.core.agent.client import AgentClient
    from warren.core.agent.values import Kernel
    from warren.core.audit.log import Audit
    from warren.core.sandboxes.sandboxes import Sandboxes
    from warren.domain.records import Caller

MAX_ROLLBACK = 8


class Kernels:
    """The use cases of kernels. A change resumes a stopped sandbox."""

    def __init__(self, sandboxes: Sandboxes, audit: Audit) -> None:
        self._sandboxes = sandboxes
        self._audit = audit

    async def list(self, caller: Caller, sandbox_id: str) -> tuple[Kernel, ...]:
        """Return the kernels with their state. A stopped sandbox has none, and stays stopped."""
        if (await self._sandboxes.get(caller, sandbox_id)).status is Status.STOPPED:
            return ()
        async with self._sandboxes.use(caller, sandbox_id, Scope.READ) as live:
            return await live.agent.kernels()

    async def create(self, caller: Caller, sandbox_id: str, kernel: str) -> Kernel:
        """Start one more kernel. Raises Conflict when there is one of that name, or as many as there may be."""
        async with self._changing(caller, sandbox_id, "create", kernel) as agent:
            await agent.create_kernel(kernel)
            return await _find(agent, kernel)

    async def restart(self, caller: Caller, sandbox_id: str, kernel: str) -> Kernel:
        """Start a kernel afresh: its variables are gone, and a running cell ends as interrupted. Raises NotFound."""
        async with self._changing(caller, sandbox_id, "restart", kernel) as agent:
            await agent.restart_kernel(kernel)
            return await _find(agent, kernel)

    async def fork(self, caller: Caller, sandbox_id: str, kernel: str, to: str) -> Kernel:
        """Copy a kernel with all its variables. Raises Conflict, with the reason, when it cannot be forked now."""
        async with self._changing(caller, sandbox_id, "fork", kernel, to=to) as agent:
            await agent.fork_kernel(kernel, to)
            return await _find(agent, to)

    async def rollback(self, caller: Caller, sandbox_id: str, kernel: str, cells: int = 1) -> int:
        """Undo the last cells and return how many. Raises Conflict when it is busy or has no such checkpoint."""
        if not 1 <= cells <= MAX_ROLLBACK:
            raise InvalidRequest(f"cells must be between 1 and {MAX_ROLLBACK}, not {cells}")
        async with self._changing(caller, sandbox_id, "rollback", kernel, cells=cells) as agent:
            return await agent.rollback_kernel(kernel, cells)

    async def delete(self, caller: Caller, sandbox_id: str, kernel: str) -> None:
        """End a kernel; its variables are gone. Raises NotFound."""
        async with self._changing(caller, sandbox_id, "delete", kernel) as agent:
            await agent.delete_kernel(kernel)

    @contextlib.asynccontextmanager
    async def _changing(
        self, caller: Caller, sandbox_id: str, verb: str, kernel: str, **details: Any
    ) -> AsyncIterator[AgentClient]:
        check_name("kernel", kernel)
        if isinstance(to := details.get("to"), str):
            check_name("to", to)
        self._audit.check_writable()
        async with (
            self._audit.operation(caller, f"kernel.{verb}", sandbox_id=sandbox_id, kernel=kernel, **details),
            self._sandboxes.use(caller, sandbox_id) as live,
        ):
            yield live.agent


async def _find(agent: AgentClient, name: str) -> Kernel:
    """Return the state of a kernel that was just made or changed."""
    for kernel in await agent.kernels():
        if kernel.name == name:
            return kernel
    raise Conflict(f"kernel {name} was ended in the same moment")
