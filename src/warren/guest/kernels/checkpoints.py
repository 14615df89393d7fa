"""Checkpoints: frozen copies of a kernel after earlier cells, ready to take over, and why one is missing."""

from __future__ import annotations

import os
import signal
import socket
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.guest.kernels.socket import KernelSocket
from warren.guest.system import processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.agent import Agent
    from warren.guest.kernels.cells import CellRun
    from warren.guest.system.loop import Loop
    from warren.guest.wire.frames import Header

    Forked = Callable[["Checkpoint | None", str], None]
    """Called with the checkpoint, or with None and the reason."""


@dataclass(slots=True, eq=False)
class Checkpoint:
    """One frozen copy: a child of the agent that waits on its own socket."""

    pid: int
    socket: KernelSocket
    cell: int
    """How many cells its kernel had finished when it was made."""


def check_claim(loop: Loop, pid: int, fd: int, cell: int) -> Checkpoint | None:
    """Build a checkpoint from the claim of a kernel; None, with the descriptor closed, where the claim is false.

    The pid must be that of an unknown child of the agent, or dropping the checkpoint would kill another process.
    """
    if pid <= 1 or loop.is_child_known(pid) or not processes.is_child(pid) or not stat.S_ISSOCK(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    sock = socket.socket(fileno=fd)
    if sock.family != socket.AF_UNIX or sock.type & ~socket.SOCK_NONBLOCK != socket.SOCK_STREAM:
        sock.close()
        return None
    return Checkpoint(pid, KernelSocket(loop, sock), cell)


class Checkpoints:
    """The checkpoints of one kernel, oldest first."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._checkpoints: list[Checkpoint] = []

    def __len__(self) -> int:
        return len(self._checkpoints)

    @property
    def pids(self) -> list[int]:
        """Their pids."""
        return [one.pid for one in self._checkpoints]

    @property
    def newest_cell(self) -> int | None:
        """How many cells had finished when the newest was made."""
        return self._checkpoints[-1].cell if self._checkpoints else None

    def add(self, new: Checkpoint, keep: int) -> None:
        """Add one, and drop the oldest above `keep`."""
        self._loop.on_exit(new.pid, lambda _status, _usage: self._gone(new))
        new.socket.on_broken = lambda _why: self._drop(new)
        new.socket.on_frame = lambda _header, _payload: self._drop(new)
        self._checkpoints.append(new)
        while len(self._checkpoints) > keep:
            self._drop(self._checkpoints[0])

    def take_newest(self) -> Checkpoint | None:
        """Remove and return the newest one, to be woken."""
        return self._checkpoints.pop() if self._checkpoints else None

    def has_cell(self, cell: int) -> bool:
        """Return whether there is one made after exactly so many cells."""
        return any(one.cell == cell for one in self._checkpoints)

    def drop_after(self, cell: int) -> None:
        """Drop all that were made after more cells than that."""
        for one in [one for one in self._checkpoints if one.cell > cell]:
            self._drop(one)

    def drop_all(self) -> None:
        """Drop all."""
        self.drop_after(-1)

    def _gone(self, one: Checkpoint) -> None:
        one.socket.close()
        if one in self._checkpoints:
            self._checkpoints.remove(one)

    def _drop(self, one: Checkpoint) -> None:
        self._gone(one)
        # SAFE BECAUSE: a child that the loop still knows has not been reaped, so its pid is not reused.
        if self._loop.is_child_known(one.pid):
            self._loop.forget_child(one.pid)
            processes.send(one.pid, signal.SIGKILL)


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
