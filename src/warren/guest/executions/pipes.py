"""Pipes, separate for each execution: a process left running by an earlier one cannot write into a later result."""

from __future__ import annotations

import fcntl
import functools
import os
import termios
from collections import deque
from typing import TYPE_CHECKING

from warren.guest.system.loop import READ, Loop
from warren.guest.wire.pump import Inflow

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from warren.guest.wire.streams import Stream

READ_SIZE = 64 << 10
MAX_LEFTOVERS = 64
"""Pipes of ended executions that are still drained for processes left running; those of the newest come on top."""


class Leftovers:
    """Drains and discards the output of background processes, so that they do not die of a broken pipe."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._fds: dict[int, None] = {}

    def add(self, fds: Collection[int]) -> None:
        """Take over the reading ends of an execution; above the bound the oldest are closed first."""
        # The new ones do not count: a cell that leaves nothing running may be here too, until its kernel closes the
        # other ends, and must not cost a program its pipe.
        while len(self._fds) > MAX_LEFTOVERS:
            self._close(next(iter(self._fds)))
        for fd in fds:
            self._fds[fd] = None
            self._loop.watch(fd, READ, functools.partial(self._discard, fd))

    def _discard(self, fd: int, _events: int) -> None:
        try:
            if os.read(fd, READ_SIZE):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._close(fd)

    def _close(self, fd: int) -> None:
        del self._fds[fd]
        self._loop.unwatch(fd)
        os.close(fd)


class Stdin:
    """Standard input of a program from a stream; buffered until the program has started."""

    def __init__(self, loop: Loop, stream: Stream) -> None:
        self._loop = loop
        self._fd: int | None = None
        self._inflow: Inflow | None = None
        self._held: deque[bytes] = deque()
        self._ended = False
        self.stream = stream
        # The stream's window bounds the buffer: credit is granted only for written bytes.
        stream.on_data = self._held.append
        stream.on_eof = self.end

    def connect(self, fd: int) -> None:
        """Write to `fd` from now on, and close it at the end of input."""
        self._fd = fd
        self._inflow = Inflow(self._loop, fd, self.stream, lambda _error: self.close())
        self.stream.on_data = self._inflow.write
        for data in self._held:
            self._inflow.write(data)
        self._held.clear()
        if self._ended and self._fd is not None:
            self._inflow.finish()

    def end(self) -> None:
        """End the input: the program sees end of file once it has read all."""
        self._ended = True
        if self._inflow is not None and self._fd is not None:
            self._inflow.finish()

    def close(self) -> None:
        """Close the pipe; further data is discarded."""
        self._ended = True
        self._held.clear()
        if self._inflow is not None:
            self._inflow.stop()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Pipes:
    """Standard input, output and error of one execution; `sink(kind, data)` gets the output.

    `may_read(resume)` is called after each read; where it returns False, reading stops until `resume` is called.
    """

    def __init__(
        self,
        loop: Loop,
        stdin: Stdin | None,
        null_fd: int,
        sink: Callable[[str, bytes], None],
        may_read: Callable[[Callable[[], None]], bool],
    ) -> None:
        self._loop = loop
        self._stdin = stdin
        self._sink = sink
        self._may_read = may_read
        self._kinds: dict[int, str] = {}
        self.theirs: list[int] = []
        """The program's ends: stdin, stdout, stderr. The caller that passes them on closes them."""
        try:
            if stdin is None:
                self.theirs.append(os.dup(null_fd))
            else:
                reading, writing = os.pipe2(os.O_CLOEXEC)
                self.theirs.append(reading)
                stdin.connect(writing)
            for kind in ("stdout", "stderr"):
                reading, writing = os.pipe2(os.O_CLOEXEC)
                self.theirs.append(writing)
                self._kinds[reading] = kind
                os.set_blocking(reading, False)
            self._resume()
        except OSError:
            self.close_theirs()
            self.abandon()
            raise

    def close_theirs(self) -> None:
        """Close the program's ends in this process."""
        for fd in self.theirs:
            os.close(fd)
        self.theirs.clear()

    def drain(self) -> None:
        """Read what has been written so far, without waiting, and no more: a writer may never stop."""
        for fd, kind in list(self._kinds.items()):
            waiting = int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"), "little")
            while waiting > 0:
                try:
                    data = os.read(fd, min(waiting, 1 << 20))
                except BlockingIOError:
                    break
                if not data:
                    break
                waiting -= len(data)
                self._sink(kind, data)

    def finish(self) -> None:
        """Read the output so far; later output, of processes left running, is discarded. `let_go` must follow."""
        self.drain()
        self._sink = _discard
        self._close_stdin()

    def let_go(self, leftovers: Leftovers) -> None:
        """Close the pipes; those whose other end a process still holds go to `leftovers`, which drains them."""
        for fd in [fd for fd in self._kinds if _is_at_end(fd)]:
            self._close(fd)
        leftovers.add(self._kinds)
        self._kinds.clear()

    def abandon(self) -> None:
        """Close everything: nothing was started."""
        for fd in list(self._kinds):
            self._close(fd)
        self._close_stdin()

    def _resume(self) -> None:
        for fd, kind in self._kinds.items():
            self._loop.watch(fd, READ, self._reader(fd, kind))

    def _close_stdin(self) -> None:
        if self._stdin is not None:
            self._stdin.close()

    def _reader(self, fd: int, kind: str) -> Callable[[int], None]:
        def read(_events: int) -> None:
            try:
                data = os.read(fd, READ_SIZE)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                self._sink(kind, data)
                if not self._may_read(self._resume):
                    for waiting in self._kinds:
                        self._loop.unwatch(waiting)
            elif fd in self._kinds:
                self._close(fd)

        return read

    def _close(self, fd: int) -> None:
        del self._kinds[fd]
        self._loop.unwatch(fd)
        os.close(fd)


def _discard(_kind: str, _data: bytes) -> None:
    """Discard output that comes after the end."""


def _is_at_end(fd: int) -> bool:
    try:
        return not os.read(fd, READ_SIZE)
    except OSError:
        return False
