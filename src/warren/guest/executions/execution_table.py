"""Execution table: all executions that run, and the finished ones that no gateway has acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.guest.wire.parameters import Refused

if TYPE_CHECKING:
    from warren.guest.executions.execution import Execution

MAX_RUNNING = 256
MAX_FINISHED = 64
MAX_FINISHED_BYTES = 32 << 20


class ExecutionTable:
    """Executions by id; above a bound the oldest finished ones are dropped."""

    def __init__(self) -> None:
        self._executions: dict[str, Execution] = {}
        self._finished: dict[str, Execution] = {}
        self._finished_bytes = 0

    def add(self, execution: Execution) -> None:
        """Add one; its id must be new. Raises Refused."""
        if execution.id in self._executions:
            raise Refused("conflict", f"execution {execution.id} exists already")
        if len(self._executions) - len(self._finished) >= MAX_RUNNING:
            raise Refused("conflict", f"{MAX_RUNNING} executions are running or waiting: wait for one to end")
        self._executions[execution.id] = execution

    def get(self, execution_id: str) -> Execution:
        """Find one. Raises Refused."""
        found = self._executions.get(execution_id)
        if found is None:
            raise Refused("not_found", f"there is no execution {execution_id}")
        return found

    def finish(self, execution: Execution) -> None:
        """Mark one as finished, and drop the oldest finished ones above the bound."""
        self._finished[execution.id] = execution
        self._finished_bytes += execution.kept_bytes
        while len(self._finished) > MAX_FINISHED or (
            self._finished_bytes > MAX_FINISHED_BYTES and len(self._finished) > 1
        ):
            self.forget(next(iter(self._finished.values())))

    def forget(self, execution: Execution) -> None:
        """Drop one."""
        if self._finished.pop(execution.id, None) is not None:
            self._finished_bytes -= execution.kept_bytes
        self._executions.pop(execution.id, None)

    def summary(self) -> list[dict[str, Any]]:
        """List them for `hello`."""
        return [
            {"exec": one.id, "state": "finished" if one.finished else "running", "seq": one.seq}
            for one in self._executions.values()
        ]
