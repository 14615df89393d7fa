"""Checkpoints: frozen copies of a kernel after earlier cells, ready to take over."""

from __future__ import annotations

import os
import signal
import socket
import stat
from typing import TYPE_CHECKING

from warren.guest.kernels.socket import KernelSocket
from warren.guest.system import processes

if TYPE_CHECKING:
    from warren.guest.system.loop import Loop


class Checkpoint:
    """One frozen copy: a child of the agent that waits on its own socket."""

    __slots__ = ("cell", "pid", "socket")

    def __init__(self, pid: int, link: KernelSocket, cell: int) -> None:
        self.pid = pid
        self.socket = link
        self.cell = cell
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
