"""Cell runs: one cell in a kernel, with its own pipes, the claims of the kernel, and the measured facts."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from warren.guest.executions.cause import Ending
from warren.guest.executions.request import open_folder, relative_folder
from warren.guest.executions.run import Run
from warren.guest.system.processes import MARK

if TYPE_CHECKING:
    from warren.guest.agent import Agent
    from warren.guest.executions.execution import Execution
    from warren.guest.kernels.kernel import Kernel
    from warren.guest.kernels.process import Clock


class CellRun(Run):
    """One cell, waiting for its kernel or running in it."""

    def __init__(self, agent: Agent, execution: Execution, kernel: Kernel) -> None:
        super().__init__(agent, execution)
        self._kernel = kernel
        self._cwd = self._find_folder(agent)
        self._cpu_before_ms = 0.0
        self.protected = True
        self.why_unprotected: str | None = None

    def _find_folder(self, agent: Agent) -> str | None:
        """Return the working folder as the kernel sees it. Raises Refused when it does not exist."""
        if self.request.cwd is None:
            return None
        os.close(open_folder(agent.boot.workspace, agent.workspace_fd, self.request.cwd))
        return os.path.join(agent.boot.workspace, relative_folder(agent.boot.workspace, self.request.cwd))

    def send_interrupt(self) -> None:
        """Interrupt the cell; a waiting one ends here."""
        self._kernel.interrupt(self)

    def send_kill(self) -> None:
        """Kill the kernel; a waiting cell ends here."""
        self._kernel.kill(self)

    def start(self, clock: Clock, checkpoint_bytes: int) -> None:
        """Send it to the kernel."""
        pipes = self.open_pipes()
        self.begin()
        self._cpu_before_ms = clock.read_ms()
        theirs, pipes.theirs = pipes.theirs, []
        header = {
            "t": "cell",
            "exec": self.execution.id,
            "echo": self.request.echo,
            "cwd": self._cwd,
            "env": {**self.request.env, MARK: self.execution.id},
            "checkpoint": checkpoint_bytes if self.request.checkpoint else 0,
        }
        self._kernel.send(header, self.request.code.encode(), theirs)

    def display(self, kind: str, payload: bytes) -> None:
        """Record a display after the output before it."""
        assert self.pipes is not None
        self.pipes.drain()
        self.execution.display(kind, payload)

    def done(self, clock: Clock, status: str, exit_code: int, error: dict[str, str] | None) -> None:
        """End it as the kernel claims; the kernel lives on."""
        ending = Ending(exit_code=exit_code, died=False, status=status, error=error, state="kept")
        self._end(ending, clock.read_ms() - self._cpu_before_ms)

    def died(self, exit_code: int | None, cpu_ms: float, state: str, cells_back: int) -> None:
        """End it because its kernel died."""
        ending = Ending(exit_code=exit_code, state=state, cells_back=cells_back)
        self._end(ending, cpu_ms - self._cpu_before_ms)

    def never_ran(self, why: str | None = None) -> None:
        """End it while it waits: it was cancelled, or no kernel could be started."""
        if why is not None:
            self.execution.notes.append(why)
        state = "kept" if self.deadline.asked or self.deadline.interrupted else "lost"
        status = "interrupted" if self.deadline.interrupted else None
        self._end(Ending(exit_code=None, status=status, state=state), 0.0)

    def _end(self, ending: Ending, cpu_ms: float) -> None:
        if self.pipes is not None:
            self.pipes.finish()
        elif self.execution.stdin is not None:
            self.execution.stdin.close()
        news = self._kernel.take_news()
        if news.note is not None:
            self.execution.notes.append(news.note)
        if ending.state == "kept" and news.state is not None:
            ending = replace(ending, state=news.state, cells_back=news.cells_back)
        self.conclude(ending, cpu_ms, protected=self.protected, why_unprotected=self.why_unprotected)
