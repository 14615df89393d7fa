"""Protection of a kernel's variables: its checkpoints, those that are expected, and why one is missing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from warren.guest.kernels.checkpoints import Checkpoint, Checkpoints, check_claim

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.agent import Agent
    from warren.guest.kernels.cells import CellRun
    from warren.guest.wire.frames import Header

    Forked = Callable[[Checkpoint | None, str], None]
    """Called with the checkpoint, or with None and the reason."""


class Protection:
    """The checkpoints of one kernel. The kernel only claims them: one that was not requested is dropped."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.checkpoints = Checkpoints(agent.loop)
        self.private_bytes = 0
        """Memory of the kernel that no other process shared when it was last copied."""
        self.why: str | None = None
        """Why the last checkpoint could not be made."""
        self._expected: tuple[str, int] | None = None
        """The execution whose checkpoint may arrive, and how many cells it will hold."""
        self._forking: dict[str, Forked] = {}
        self._tokens = 0

    @property
    def limit_bytes(self) -> int:
        """The most private memory of a kernel that is copied after each cell; 0 where checkpoints are off."""
        limits = self._agent.limits
        return int(limits.get("checkpoint_bytes", 0)) if limits.get("checkpoints", 0) else 0

    def covers(self, executed: int) -> bool:
        """Return whether nothing would be lost if the kernel died now, after so many cells."""
        return executed in (0, self.checkpoints.newest_cell)

    def has(self, cell: int, cells_back: int) -> bool:
        """Return whether the kernel can be rolled back by so many cells, to its state after cell `cell`."""
        # Before its first cell a kernel equals a new one: that needs no checkpoint.
        return cells_back <= self._agent.limits.get("checkpoints", 0) and (cell == 0 or self.checkpoints.has_cell(cell))

    def note(self, run: CellRun, executed: int) -> None:
        """Record in a cell whether it was protected."""
        run.protected = self.covers(executed)
        if not run.protected:
            off = not self._agent.limits.get("checkpoints", 0)
            run.why_unprotected = "checkpoints are off" if off else self.why or "its checkpoint was not ready yet"

    def expect(self, execution: str, cell: int) -> None:
        """Accept the checkpoint that is made after an execution."""
        self._expected = (execution, cell)

    def expect_nothing(self) -> None:
        """Accept no checkpoint: its state is not wanted any more."""
        self._expected = None

    def drop_all(self) -> None:
        """Drop all checkpoints, also the expected one."""
        self.checkpoints.drop_all()
        self.expect_nothing()

    def ask_for_checkpoint(self, cell: int) -> Header:
        """Build the frame that requests a checkpoint of an idle kernel."""
        token = self._token()
        self.expect(token, cell)
        return {"t": "fork", "exec": token, "checkpoint": self.limit_bytes}

    def ask_for_fork(self, forked: Forked) -> Header:
        """Build the frame that requests a copy of an idle kernel, to become another kernel."""
        token = self._token()
        self._forking[token] = forked
        return {"t": "fork", "exec": token, "checkpoint": 0}

    def lose_forks(self, why: str) -> None:
        """Fail all pending forks."""
        forking, self._forking = self._forking, {}
        for forked in forking.values():
            forked(None, why)

    def arrived(self, about: str, pid: int, fd: int | None, private_bytes: int, executed: int) -> None:
        """Take a copy that the kernel claims it made; one that was not requested is dropped."""
        forked = self._forking.pop(about, None)
        expected = self._expected if self._expected is not None and self._expected[0] == about else None
        if fd is None or (forked is None and expected is None):
            if fd is not None:
                os.close(fd)
            return
        self.private_bytes = private_bytes
        copy = check_claim(self._agent.loop, pid, fd, expected[1] if expected is not None else executed)
        if forked is not None:
            forked(copy, "the copy is not what it claims to be")
        else:
            self._expected = None
            if copy is not None:
                self.why = None
                # One more than rollback can reach: the newest is the state that a crash falls back on.
                self.checkpoints.add(copy, int(self._agent.limits.get("checkpoints", 0)) + 1)

    def refused(self, about: str, why: str) -> None:
        """Record that the kernel could not be copied."""
        forked = self._forking.pop(about, None)
        if forked is not None:
            forked(None, why)
        elif self._expected is not None and self._expected[0] == about:
            self._expected = None
            self.why = why

    def _token(self) -> str:
        self._tokens += 1
        return f"copy-{self._tokens}"
