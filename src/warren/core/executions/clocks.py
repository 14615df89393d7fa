"""Clocks of executions: after how long the service stops waiting, counted from when an execution can begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio

if TYPE_CHECKING:
    from warren.domain.records import Execution

LATE_S = 1.0
"""How long after its timeout and its grace the end of an execution is waited for, and then its result once more."""


class Timed(Protocol):
    """An execution that is waited for; the supervisor's `Running` is one."""

    execution: Execution
    limit_s: float
    watch: anyio.CancelScope


class Clocks:
    """Starts the clock of each execution. Cells of one kernel run one after another, and so do their clocks."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], list[Timed]] = {}
        """The cells of each kernel, by sandbox and name; the first one runs."""

    def add(self, running: Timed) -> None:
        """Start the clock of an execution, unless cells before it have not ended."""
        kernel = running.execution.kernel
        if kernel is not None:
            line = self._lines.setdefault((running.execution.sandbox_id, kernel), [])
            line.append(running)
            if line[0] is not running:
                return
        _start(running)

    def remove(self, running: Timed) -> None:
        """Forget an execution that has ended, and start the clock of the next cell of its kernel."""
        key = (running.execution.sandbox_id, running.execution.kernel or "")
        line = self._lines.get(key, [])
        if running not in line:
            return
        is_first = line[0] is running
        line.remove(running)
        if not line:
            del self._lines[key]
        elif is_first:
            _start(line[0])


def _start(running: Timed) -> None:
    running.watch.deadline = anyio.current_time() + running.limit_s
