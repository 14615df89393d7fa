"""A server outside for `egress.py`, in a process of its own: `/small` is a few bytes, `/N` is N megabytes.

With `PUT /N` the client has that many, and they are read and dropped.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading

CHUNK = bytes(1_000_000)


def serve(connection: socket.socket) -> None:
    """Answer requests for as long as the client sends some."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(1 << 20))
    with connection, contextlib.suppress(ConnectionError):
        said = b""
        while piece := connection.recv(65_536):
            said += piece
            while b"\r\n\r\n" in said:
                head, _, said = said.partition(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].rpartition(b"/")[2].decode()
                count = 0 if path == "small" else int(path)
                if head.startswith(b"PUT"):
                    left, said, count = count * len(CHUNK) - len(said), b"", 0
                    while left > 0:
                        left -= connection.recv_into(buffer[:left]) or left
                body = b"small" if path == "small" else b""
                size = len(body) + count * len(CHUNK)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, body))
                for _ in range(count):
                    connection.sendall(CHUNK)


def main() -> None:
    """Say the port, and serve until the standard input ends."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
