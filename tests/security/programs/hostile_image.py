"""A module that an image preloads: it runs in the zygote, before any sandbox."""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import socket
import struct
import threading
from typing import Any

TARGETS: dict[str, Any] = json.loads(os.environ["HOSTILE"])
FOUND: dict[str, Any] = {}
_libc = ctypes.CDLL(None, use_errno=True)
_MS_REMOUNT_BIND = 0x20 | 0x1000


def attempt(name: str, action: Any) -> None:
    """Note what could be done."""
    try:
        FOUND[name] = repr(action())
    except OSError:
        return


def read(path: str) -> bytes:
    """Read the beginning of a file."""
    with open(path, "rb") as file:
        return file.read(64)


def call(function: Any, *arguments: Any) -> None:
    """Call into the C library, with an exception when it fails."""
    if function(*arguments) != 0:
        raise OSError(ctypes.get_errno())


def explore() -> None:
    """Try to reach the host, its processes and other images with the zygote's rights."""
    for path in TARGETS["files"]:
        attempt(f"read {path}", lambda path=path: read(path))
    for path in ("/usr/made", "/opt/warren/made", "/opt/image/made", "/etc/made", "/made"):
        attempt(f"write {path}", lambda path=path: open(path, "w").close())
        folder = os.path.dirname(path).encode()
        attempt(f"remount {path}", lambda folder=folder: call(_libc.mount, None, folder, None, _MS_REMOUNT_BIND, None))
        attempt(f"write again {path}", lambda path=path: open(path, "w").close())
    for folder in (b"/usr", b"/opt/warren", b"/proc", b"/"):
        attempt(f"umount {folder!r}", lambda folder=folder: call(_libc.umount2, folder, 2))
    attempt("block device", lambda: os.mknod("/tmp/disk", 0o060666, os.makedev(254, 0)))
    for pid in TARGETS["pids"]:
        attempt(f"kill {pid}", lambda pid=pid: os.kill(pid, 0))
        for name in ("mem", "environ", "maps", "root/etc/passwd", "cwd", "fd/0"):
            attempt(f"look {pid} {name}", lambda pid=pid, name=name: read(f"/proc/{pid}/{name}"))
        attempt(f"trace {pid}", lambda pid=pid: call(_libc.ptrace, 16, pid, 0, 0))
    for address in TARGETS["sockets"]:
        where = tuple(address) if isinstance(address, list) else address
        family = socket.AF_INET if isinstance(where, tuple) else socket.AF_UNIX
        attempt(f"connect {where}", lambda where=where, family=family: socket.socket(family).connect(where))
    FOUND["map"] = read("/proc/self/uid_map").decode().split()


def accept() -> socket.socket:
    """Pose as the zygote: take the keeper's connection from the listening socket."""
    return socket.socket(fileno=os.dup(3)).accept()[0]


def frame(header: bytes) -> bytes:
    """Build a frame."""
    return struct.pack(">II", len(header), 0) + header


def say(data: bytes) -> None:
    """Say something to the keeper, and then nothing more."""
    keeper = accept()
    keeper.sendall(data)
    threading.Event().wait()


def betray() -> None:
    """Answer the keeper's requests with processes of the host."""
    keeper = accept()
    keeper.sendall(frame(b'{"t": "ready", "version": "%s", "error": null}' % TARGETS["version"].encode()))
    while data := keeper.recv(65536):
        start = data.find(b'"sandbox":"')
        if start < 0:
            keeper.sendall(frame(b'{"t": "parked"}'))
            continue
        name = data[start + 11 :].split(b'"')[0]
        for pid in TARGETS["pids"]:
            pidfd = os.pidfd_open(pid)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [pidfd]))]
            message = frame(b'{"t": "spawned", "sandbox": "%s", "pid": %d}' % (name, pid))
            with contextlib.suppress(OSError):
                keeper.sendmsg([message], rights)


def flood() -> None:
    """Send descriptors without end."""
    keeper = accept()
    null = os.open("/dev/null", os.O_RDONLY)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 8))]
    while True:
        keeper.sendmsg([b"\0"], rights)


MODES: dict[str, Any] = {
    "explore": explore,
    "raise": lambda: 1 / 0,
    "exit": lambda: os._exit(0),
    "thread": lambda: threading.Thread(target=threading.Event().wait, daemon=True).start(),
    "garbage": lambda: say(os.urandom(4096)),
    "a huge frame": lambda: say(b"\xff" * 64),
    "no frame": lambda: say(frame(b"[]")),
    "betray": betray,
    "flood": flood,
}
MODES[TARGETS["mode"]]()
