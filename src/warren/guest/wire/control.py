"""Control sockets: the end of a kernel or forkserver. Frames with descriptors, blocking, one at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import threading
from typing import TYPE_CHECKING

from warren.guest.wire.frames import MAX_HEADER, MAX_PAYLOAD, Decoder, Frame, Header, ProtocolError, encode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

_LENGTHS = struct.Struct(">II")
_MAX_FDS = 8
_READ = 256 << 10
_ATOMIC = 16 << 10
"""The most that a unix socket takes as one buffer: all of it, or nothing when a signal interrupts the call."""


class Control:
    """Reads and writes frames on one descriptor, which it takes over. The agent holds the other end."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        self._lock = threading.Lock()
        self._fds: list[int] = []
        self._held = b""

    def fileno(self) -> int:
        """Return the descriptor; `dup2` may replace the socket behind it."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close it; every later call raises OSError."""
        self._socket.close()

    def detach(self) -> None:
        """Forget the descriptor, without closing it."""
        self._socket.detach()

    def wait(self) -> None:
        """Wait until a frame arrives, or the agent is gone. Raises OSError."""
        self._socket.recv(1, socket.MSG_PEEK)

    def receive(self) -> Frame | None:
        """Wait for a frame, and read nothing past it; None when the agent is gone. Raises OSError and ProtocolError."""
        lengths = self._read(_LENGTHS.size)
        if lengths is None:
            return None
        head_size, payload_size = _LENGTHS.unpack(lengths)
        if head_size > MAX_HEADER or payload_size > MAX_PAYLOAD:
            raise ProtocolError("frame over the limit")
        body = self._read(head_size + payload_size)
        return next(Decoder().feed(lengths + body), None) if body is not None else None

    def take_fds(self, count: int) -> list[int]:
        """Take the descriptors of the last frame; fewer when the descriptor table was full and they were lost."""
        taken, surplus = self._fds[:count], self._fds[count:]
        self._fds = []
        for fd in surplus:
            os.close(fd)
        return taken

    def send(self, header: Header, payload: bytes = b"", fds: Sequence[int] = ()) -> None:
        """Send one frame completely, even when an interrupt arrives half-way. Raises OSError."""
        self._write(b"".join(encode(header, payload)), fds)

    def send_with_next(self, header: Header, payload: bytes = b"") -> None:
        """Send one frame together with the next, which must follow at once: the agent wakes up once for both."""
        data = b"".join(encode(header, payload))
        with self._lock:
            is_held = not self._held and len(data) <= _ATOMIC // 2
            if is_held:
                self._held = data
        if not is_held:
            self._write(data)

    def _write(self, data: bytes, fds: Sequence[int] = ()) -> None:
        with self._lock:
            # Threads of user code send too; the next frame of any thread takes it along.
            data, self._held = self._held + data, b""
            if len(data) <= _ATOMIC:
                self._write_all(data, fds)
            else:
                with _Uninterrupted():
                    self._write_all(data, fds)

    def _write_all(self, data: bytes, fds: Sequence[int]) -> None:
        sent = socket.send_fds(self._socket, [data], fds) if fds else self._socket.send(data)
        if sent < len(data):
            self._socket.sendall(memoryview(data)[sent:])

    def _read(self, size: int) -> bytes | None:
        parts: list[bytes] = []
        while size:
            data, fds, _, _ = socket.recv_fds(self._socket, min(size, _READ), _MAX_FDS)
            self._fds += fds
            if not data:
                return None
            parts.append(data)
            size -= len(data)
        return b"".join(parts)


class _Uninterrupted(contextlib.AbstractContextManager[None]):
    """Delays SIGINT's handler: a KeyboardInterrupt inside a half-sent frame would end the kernel."""

    def __init__(self) -> None:
        self._arrived = False
        self._handler: object = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self._handler = signal.signal(signal.SIGINT, self._note)

    def __exit__(self, *_: object) -> None:
        if self._handler is None:
            return
        signal.signal(signal.SIGINT, self._handler)  # type: ignore[arg-type]  # it came from signal.signal
        if self._arrived:
            signal.raise_signal(signal.SIGINT)

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        self._arrived = True
