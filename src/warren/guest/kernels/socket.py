"""Kernel sockets: the agent's end to a kernel, a checkpoint or the forkserver. Frames with descriptors, never waiting.

Rules for changes to this file:
1. The other end is user code. It shares the socket of a checkpoint as an open file, flags included, so every call
   passes MSG_DONTWAIT itself.
2. Descriptors may arrive with an earlier frame's bytes, so a few are held for the frame that takes them; a peer that
   sends more than those, or garbage, is reported once, by `on_broken`.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import sys
import termios
from collections import deque
from typing import TYPE_CHECKING

from warren.guest.system.loop import READ, WRITE, Loop
from warren.guest.wire.frames import Decoder, Header, ProtocolError, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

READ_SIZE = 256 << 10
MAX_FDS = 4
_ROOM = socket.CMSG_SPACE(MAX_FDS * 4)
_RECEIVE = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
_SEND = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class KernelSocket:
    """`on_frame(header, payload)` gets each frame; `on_broken(why)` is called at the end.

    `why` is None at end of file and otherwise names the fault of the peer.
    """

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        self._loop = loop
        self._socket = sock
        self._decoder = Decoder()
        self._out: deque[tuple[memoryview, list[int]]] = deque()
        self._fds: list[int] = []
        self._waiting = False
        self._broken = False
        self.on_frame: Callable[[Header, bytes], None] | None = None
        self.on_broken: Callable[[str | None], None] | None = None
        self.closed = False
        loop.watch(sock.fileno(), READ, self._ready)

    def send(self, header: Header, payload: bytes = b"", fds: Sequence[int] = ()) -> None:
        """Queue one frame; the descriptors are closed here. Raises ValueError for a frame that is too large."""
        owned = list(fds)
        try:
            frame = b"" if self.closed else b"".join(encode(header, payload))
        except ValueError:
            self._drop(owned)
            raise
        if self.closed:
            self._drop(owned)
            return
        idle = not self._out
        self._out.append((memoryview(frame), owned))
        if idle:
            self._flush()

    def take_fd(self) -> int | None:
        """Take the descriptor of the current frame; the caller closes it."""
        return self._fds.pop(0) if self._fds else None

    def read_all(self) -> None:
        """Handle now what has arrived: frames outlive the peer that sent them.

        Not what arrives meanwhile: a child that user code forked may hold the peer's end and send for ever.
        """
        waiting = int.from_bytes(fcntl.ioctl(self._socket, termios.FIONREAD, bytes(4)), sys.byteorder)
        while waiting > 0 and not self.closed and not self._broken:
            size = self._read()
            if not size:
                return
            waiting -= size

    def close(self) -> None:
        """Close the socket and all queued descriptors."""
        if self.closed:
            return
        self.closed = True
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        for _, fds in self._out:
            self._drop(fds)
        self._out.clear()
        self._drop(self._fds)

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if events & READ and not self.closed:
            self._read()

    def _read(self) -> int:
        """Read once; returns the number of bytes, 0 at the end."""
        try:
            data, ancillary, _, _ = self._socket.recvmsg(READ_SIZE, _ROOM, _RECEIVE)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            data, ancillary = b"", []
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
                self._fds += fds
        if not data:
            self._break(None)
            return 0
        try:
            for header, payload in self._decoder.feed(data):
                if self.on_frame is not None:
                    self.on_frame(header, payload)
                if self.closed:
                    return 0
        except ProtocolError as error:
            self._break(str(error))
            return 0
        if len(self._fds) > MAX_FDS:
            self._break("it sent descriptors without a frame")
            return 0
        return len(data)

    def _break(self, why: str | None) -> None:
        self._broken = True
        self._loop.unwatch(self._socket.fileno())
        if self.on_broken is not None:
            self.on_broken(why)

    def _flush(self) -> None:
        try:
            while self._out:
                buffer, fds = self._out[0]
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
                sent = self._socket.sendmsg([buffer], rights, _SEND)
                self._drop(fds)
                if sent < len(buffer):
                    self._out[0] = (buffer[sent:], fds)
                else:
                    self._out.popleft()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            # End of file or the exit reports a peer that is gone.
            for _, fds in self._out:
                self._drop(fds)
            self._out.clear()
        waiting = bool(self._out) and not self._broken
        if waiting != self._waiting:
            self._waiting = waiting
            self._loop.watch(self._socket.fileno(), READ | (WRITE if waiting else 0), self._ready)

    @staticmethod
    def _drop(fds: list[int]) -> None:
        for fd in fds:
            os.close(fd)
        fds.clear()
