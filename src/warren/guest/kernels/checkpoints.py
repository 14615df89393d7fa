"""Frozen copies of a kernel: what it was after an earlier cell, ready to take over."""

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
    """One frozen copy: a child of ours that waits on its own socket."""

    __slots__ = ("cell", "pid", "socket")

    def __init__(self, pid: int, link: KernelSocket, cell: int) -> None:
        self.pid = pid
        self.socket = link
        self.cell = cell
        """How many cells its kernel had finished."""


def check_copy(loop: Loop, pid: int, fd: int, cell: int) -> Checkpoint | None:
    """Make a copy out of what a kernel claims, or None: the descriptor is closed then.

    The number must be that of a child of ours that nobody else knows, or dropping the copy would kill a stranger.
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
    """The copies of one kernel, oldest first."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._copies: list[Checkpoint] = []

    def __len__(self) -> int:
        return len(self._copies)

    @property
    def pids(self) -> list[int]:
        """Their process numbers."""
        return [copy.pid for copy in self._copies]

    @property
    def newest_cell(self) -> int | None:
        """How many cells had been finished when the newest was made."""
        return self._copies[-1].cell if self._copies else None

    def add(self, copy: Checkpoint, keep: int) -> None:
        """Keep a new one, and of the older ones as many as fit into `keep`."""
        self._loop.on_exit(copy.pid, lambda _status, _usage: self._gone(copy))
        copy.socket.on_broken = lambda _why: self._drop(copy)
        copy.socket.on_frame = lambda _header, _payload: self._drop(copy)
        self._copies.append(copy)
        while len(self._copies) > keep:
            self._drop(self._copies[0])

    def take_newest(self) -> Checkpoint | None:
        """Take the newest one out, to be woken."""
        return self._copies.pop() if self._copies else None

    def has_cell(self, cell: int) -> bool:
        """Tell whether there is a copy made after exactly so many cells."""
        return any(copy.cell == cell for copy in self._copies)

    def drop_after(self, cell: int) -> None:
        """Drop all that were made after more cells than that."""
        for copy in [copy for copy in self._copies if copy.cell > cell]:
            self._drop(copy)

    def drop_all(self) -> None:
        """Drop all."""
        self.drop_after(-1)

    def _gone(self, copy: Checkpoint) -> None:
        copy.socket.close()
        if copy in self._copies:
            self._copies.remove(copy)

    def _drop(self, copy: Checkpoint) -> None:
        self._gone(copy)
        # SAFE BECAUSE: a child that the loop still knows has not been reaped, so its number is nobody else's.
        if self._loop.is_child_known(copy.pid):
            self._loop.forget_child(copy.pid)
            processes.send(copy.pid, signal.SIGKILL)
