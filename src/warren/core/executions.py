"""Running code in sandboxes: at once, followed, or in the background; and nothing of it is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.core.execution_request import NewExecution
from warren.core.execution_running import Running

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from warren.core.admission import Admission
    from warren.core.audit import Audit
    from warren.core.links import Links
    from warren.core.policy import Policy
    from warren.core.sandboxes import Place, Sandboxes
    from warren.domain import Event
    from warren.records import Caller, Execution, Page
    from warren.stores.base import Store

__all__ = ["Executions", "NewExecution", "Running"]


class Executions:
    """The executions of all sandboxes. Its tasks run between `async with`; leaving flushes, and ends none."""

    def __init__(
        self, *, store: Store, sandboxes: Sandboxes, links: Links, admission: Admission, audit: Audit, policy: Policy
    ) -> None:
        self._store = store

    async def run(self, caller: Caller, sandbox_id: str, new: NewExecution) -> Execution:
        """Run something and return it with its result. If the caller is cancelled it is ended, and recorded."""
        raise NotImplementedError

    async def begin(self, caller: Caller, sandbox_id: str, new: NewExecution) -> Running:
        """Start something that is followed by its `events`. Use it with `async with`, or call `release`."""
        raise NotImplementedError

    async def start(self, caller: Caller, sandbox_id: str, new: NewExecution) -> Execution:
        """Start something in the background and return it, running."""
        raise NotImplementedError

    async def get(self, caller: Caller, sandbox_id: str, execution_id: str) -> Execution:
        """Return an execution. Raises NotFound."""
        raise NotImplementedError

    async def list(self, caller: Caller, sandbox_id: str, *, offset: int = 0, limit: int = 50) -> Page[Execution]:
        """Return a page of a sandbox's executions, newest first."""
        raise NotImplementedError

    async def events(
        self, caller: Caller, sandbox_id: str, execution_id: str, after: int = 0
    ) -> AsyncGenerator[Event, None]:
        """Return the events after number `after`, live ones too: await this, then iterate. Raises NotFound."""
        raise NotImplementedError

    async def write_stdin(self, caller: Caller, sandbox_id: str, execution_id: str, data: bytes) -> None:
        """Give a running execution input; waits while it has enough. Raises Conflict when its input is not open."""
        raise NotImplementedError

    async def close_stdin(self, caller: Caller, sandbox_id: str, execution_id: str) -> None:
        """Say that no more input follows. Raises Conflict when its input is not open."""
        raise NotImplementedError

    async def interrupt(self, caller: Caller, sandbox_id: str, execution_id: str) -> None:
        """Send SIGINT to a running execution. One that has ended is left alone."""
        raise NotImplementedError

    async def kill(self, caller: Caller, sandbox_id: str, execution_id: str) -> None:
        """Kill a running execution; a kernel is rolled back. One that has ended is left alone."""
        raise NotImplementedError

    async def adopt(self, place: Place) -> None:
        """Take over what a sandbox was running when an earlier service ended: follow, record, or report it lost."""
        raise NotImplementedError

    async def flush(self, sandbox_id: str | None = None) -> None:
        """Wait until everything known so far, of one sandbox or of all, is on disk."""
        raise NotImplementedError
