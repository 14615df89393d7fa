"""What protects a kernel's variables: its frozen copies, those that are on their way, and why one did not come."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from warren.guest.kernels.checkpoints import Checkpoint, Checkpoints, check_copy

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.agent import Agent
    from warren.guest.kernels.cells import CellRun
    from warren.guest.wire.frames import Header

    Forked = Callable[[Checkpoint | None, str], None]
    """Called with the copy, or with None and the reason."""


class Protection:
    """The copies of one kernel. What it says of a copy is a claim, and counts only if that copy was asked for."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.copies = Checkpoints(agent.loop)
        self.private_bytes = 0
        """What the kernel did not share with others when it was last copied."""
        self.why: str | None = None
        """Why the last copy could not be made."""
        self._expected: tuple[str, int] | None = None
        """The execution whose copy may come, and how many cells it will hold."""
        self._forking: dict[str, Forked] = {}
        self._tokens = 0

    @property
    def limit_bytes(self) -> int:
        """How much a kernel may hold to be copied after its cells; 0 where checkpoints are off."""
        limits = self._agent.limits
        return int(limits.get("checkpoint_bytes", 0)) if limits.get("checkpoints", 0) else 0

    def covers(self, executed: int) -> bool:
        """Tell whether nothing would be lost if the kernel died now, after so many cells."""
        return executed in (0, self.copies.newest_cell)

    def has(self, cell: int, cells_back: int) -> bool:
        """Tell whether the kernel can be taken back by so many cells, to what it was after cell `cell`."""
        # Before its first cell a kernel is as a new one: that needs no copy.
        return cells_back <= self._agent.limits.get("checkpoints", 0) and (cell == 0 or self.copies.has_cell(cell))

    def note(self, run: CellRun, executed: int) -> None:
        """Tell a cell whether it was protected."""
        run.protected = self.covers(executed)
        if not run.protected:
            off = not self._agent.limits.get("checkpoints", 0)
            run.why_unprotected = "checkpoints are off" if off else self.why or "its checkpoint was not ready yet"

    def expect(self, execution: str, cell: int) -> None:
        """Let the copy come that is made after an execution."""
        self._expected = (execution, cell)

    def expect_nothing(self) -> None:
        """Let no copy come: what it would hold is not wanted any more."""
        self._expected = None

    def drop_all(self) -> None:
        """Let go of all copies, also of the one on its way."""
        self.copies.drop_all()
        self.expect_nothing()

    def ask_for_checkpoint(self, cell: int) -> Header:
        """Build the frame that asks an idle kernel for a copy to fall back on."""
        token = self._token()
        self.expect(token, cell)
        return {"t": "fork", "exec": token, "checkpoint": self.limit_bytes}

    def ask_for_fork(self, forked: Forked) -> Header:
        """Build the frame that asks an idle kernel for a copy that becomes another one."""
        token = self._token()
        self._forking[token] = forked
        return {"t": "fork", "exec": token, "checkpoint": 0}

    def lose_forks(self, why: str) -> None:
        """Tell whoever waits for a copy to become another kernel that none will come."""
        forking, self._forking = self._forking, {}
        for forked in forking.values():
            forked(None, why)

    def arrived(self, about: str, pid: int, fd: int | None, private_bytes: int, executed: int) -> None:
        """Take in a copy that the kernel says it made; what nobody asked for is dropped."""
        forked = self._forking.pop(about, None)
        expected = self._expected if self._expected is not None and self._expected[0] == about else None
        if fd is None or (forked is None and expected is None):
            if fd is not None:
                os.close(fd)
            return
        self.private_bytes = private_bytes
        copy = check_copy(self._agent.loop, pid, fd, expected[1] if expected is not None else executed)
        if forked is not None:
            forked(copy, "the copy is not what it claims to be")
        else:
            self._expected = None
            if copy is not None:
                self.why = None
                # One more than can be rolled back to: the newest is the state that a crash falls back on.
                self.copies.add(copy, int(self._agent.limits.get("checkpoints", 0)) + 1)

    def refused(self, about: str, why: str) -> None:
        """Take in that the kernel could not be copied."""
        forked = self._forking.pop(about, None)
        if forked is not None:
            forked(None, why)
        elif self._expected is not None and self._expected[0] == about:
            self._expected = None
            self.why = why

    def _token(self) -> str:
        self._tokens += 1
        return f"copy-{self._tokens}"
