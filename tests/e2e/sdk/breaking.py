"""A proxy that passes bytes on until it is told to break every connection, as a network does."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

DEADLINE_S = 60.0
RESET = struct.pack("ii", 1, 0)


class BreakingProxy:
    """Listens on a port of its own, and passes everything on to another of this machine."""

    def __init__(self, port: int) -> None:
        self.to = port
        """Where new connections lead."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def cut(self) -> None:
        """Break every connection there is; new ones are welcome."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                each.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Break every connection, and let none in any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.to), timeout=DEADLINE_S)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                with self._lock:
                    self.connections += 1
                    self._sockets += [near, far]
                self._spawn(self._pump, near, far)
                self._spawn(self._pump, far, near)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()

    def _spawn(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]  # ours, all of them
        self._threads.append(thread)
        thread.start()
