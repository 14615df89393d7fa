"""Inside a kernel: find its control socket and speak on it. Attacks are cells that begin with this."""

from __future__ import annotations

import array
import gc
import json
import os
import socket
import stat
import struct
from typing import Any

OWN = os.environ.get("WARREN_EXECUTION", "")


def frame(header: Any, payload: bytes = b"") -> bytes:
    """Build a frame as a kernel would."""
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">II", len(head), len(payload)) + head + payload


def sockets() -> list[int]:
    """Find every socket of this process: those that are open, and those that objects hold."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                found.add(int(name))
        except OSError:
            continue
    found |= {thing.fileno() for thing in gc.get_objects() if isinstance(thing, socket.socket) and thing.fileno() >= 0}
    return sorted(found)


def say(data: bytes, fds: list[int] | None = None) -> None:
    """Write to every socket there is, without waiting."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    for fd in sockets():
        try:
            with socket.socket(fileno=os.dup(fd)) as sock:
                sock.sendmsg([data], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            continue


def done(execution: str, **fields: Any) -> bytes:
    """Claim that an execution has finished."""
    return frame({"t": "done", "exec": execution, "status": "ok", "error": None, "exit_code": 0, **fields})
