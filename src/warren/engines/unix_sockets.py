"""Unix sockets at paths, by which the processes of this host find each other."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKLOG = 128


def connect_socket(path: str) -> socket.socket:
    """Connect to a process of ours that listens at `path`; the socket does not block. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(path) as short:
            sock.connect(short)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def listen(path: str) -> socket.socket:
    """Make a listening socket at `path`, replacing that of a dead process."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(path) as short:
            sock.bind(short)
        os.chmod(path, 0o600)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def short_path(path: str) -> Iterator[str]:
    """Give a name for `path` that fits the 107 bytes of a socket address, however deep its folder is."""
    if len(os.fsencode(path)) <= 107:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)
