"""Pumps: move bytes between a descriptor and a stream, both ways, against credit and without waiting."""

from __future__ import annotations

import errno
import os
from collections import deque
from typing import TYPE_CHECKING

from warren.guest.system.loop import READ, WRITE, Loop
from warren.guest.wire.frames import CHUNK
from warren.guest.wire.streams import BUSY_BACKLOG, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNKS_A_ROUND = 4
"""How many chunks one stream may send before the loop serves the others."""


def may_send(stream: Stream, resume: Callable[[], None]) -> bool:
    """Return whether `stream` may send a chunk now; if not, `resume` is called when it may."""
    if stream.closed:
        return False
    if stream.credit <= 0:
        stream.on_credit = resume
        return False
    stream.on_credit = None
    if stream.connection.backlog >= BUSY_BACKLOG:
        stream.connection.on_drained.add(resume)
        return False
    return True


class Outflow:
    """Sends the data of a pipe, socket or terminal; `on_end(error)` is called once, at its end.

    The caller closes the descriptor, after `stop` or `on_end`.
    """

    def __init__(self, loop: Loop, fd: int, stream: Stream, on_end: Callable[[OSError | None], None]) -> None:
        self._loop = loop
        self.fd = fd
        self._stream = stream
        self._on_end = on_end
        self._stopped = False
        self.sent = 0
        os.set_blocking(fd, False)
        self._resume()

    def stop(self) -> None:
        """Read no more; `on_end` is not called."""
        if not self._stopped:
            self._stopped = True
            self._loop.unwatch(self.fd)

    def _resume(self) -> None:
        if not self._stopped and may_send(self._stream, self._resume):
            self._loop.watch(self.fd, READ, self._ready)

    def _ready(self, _events: int) -> None:
        for _ in range(CHUNKS_A_ROUND):
            try:
                data = os.read(self.fd, min(CHUNK, self._stream.credit))
            except BlockingIOError:
                return
            except OSError as error:
                # A terminal whose last program has ended returns EIO where a pipe returns end of file.
                self._end(None if error.errno == errno.EIO else error)
                return
            if not data:
                self._end(None)
                return
            self.sent += len(data)
            self._stream.send(data)
            if self._stopped:
                return
            if not may_send(self._stream, self._resume):
                self._loop.unwatch(self.fd)
                return

    def _end(self, error: OSError | None) -> None:
        self.stop()
        self._on_end(error)


class Inflow:
    """Writes a stream's data to a pipe, socket or terminal; the queue is bounded by the stream's window.

    After `finish`, `on_end(error)` is called once all is written; earlier if the other end is gone, and then later data
    is discarded. The caller closes the descriptor, after `stop` or `on_end`.
    """

    def __init__(self, loop: Loop, fd: int, stream: Stream, on_end: Callable[[OSError | None], None]) -> None:
        self._loop = loop
        self.fd = fd
        self._stream = stream
        self._on_end = on_end
        self._queue: deque[memoryview] = deque()
        self._finishing = False
        self._stopped = False
        self._watching = False
        self.received = 0
        os.set_blocking(fd, False)

    def write(self, data: bytes) -> None:
        """Queue data of the stream: usable as its `on_data`."""
        self.received += len(data)
        if self._stopped:
            self._stream.consumed(len(data))
            return
        self._queue.append(memoryview(data))
        if not self._watching:
            self._flush(0)

    def finish(self) -> None:
        """End the data: usable as the stream's `on_eof`."""
        self._finishing = True
        if not self._queue:
            self._end(None)

    def stop(self) -> None:
        """Write no more; `on_end` is not called."""
        if not self._stopped:
            self._stopped = True
            self._loop.unwatch(self.fd)
            self._queue.clear()

    def _flush(self, _events: int) -> None:
        try:
            while self._queue:
                first = self._queue[0]
                written = os.write(self.fd, first)
                self._stream.consumed(written)
                if written < len(first):
                    self._queue[0] = first[written:]
                else:
                    self._queue.popleft()
        except BlockingIOError:
            self._watching = True
            self._loop.watch(self.fd, WRITE, self._flush)
            return
        except OSError as error:
            self._stream.consumed(sum(map(len, self._queue)))
            self._end(error)
            return
        if self._watching:
            self._watching = False
            self._loop.unwatch(self.fd)
        if self._finishing:
            self._end(None)

    def _end(self, error: OSError | None) -> None:
        if not self._stopped:
            self.stop()
            self._on_end(error)
