"""Inside, as a background process: swap names in the workspace for links that lead out, as fast as can be.

`/tmp/outside` is the place that no file operation may ever reach. Ends when `/tmp/stop` appears.
"""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}[os.uname().machine]
_AT_FDCWD = -100
_EXCHANGE = 2


def exchange(one: bytes, other: bytes) -> None:
    """Swap two names in one step."""
    _libc.syscall(_RENAMEAT2, _AT_FDCWD, one, _AT_FDCWD, other, _EXCHANGE)


def prepare() -> None:
    """Make the outside, and pairs of honest things and links with their names next to them."""
    os.makedirs("/tmp/outside/sub")
    for path in ("/tmp/outside/file", "/tmp/outside/sub/file"):
        with open(path, "w", encoding="ascii") as file:
            file.write("OUTSIDE")
    os.makedirs("/workspace/tree/folder/sub")
    for path in ("folder/file", "folder/sub/file", "file"):
        with open(f"/workspace/tree/{path}", "w", encoding="ascii") as file:
            file.write("inside")
    os.symlink("/tmp/outside", "/workspace/tree/folder.link")
    os.symlink("/tmp/outside/sub", "/workspace/tree/folder/sub.link")
    os.symlink("/tmp/outside/file", "/workspace/tree/file.link")


def main() -> None:
    """Swap until the stop file exists; a deleted pair is made again."""
    pairs = [
        (b"/workspace/tree/folder", b"/workspace/tree/folder.link"),
        (b"/workspace/tree/folder/sub", b"/workspace/tree/folder/sub.link"),
        (b"/workspace/tree/file", b"/workspace/tree/file.link"),
    ]
    turn = 0
    while turn % 256 or not os.path.exists("/tmp/stop"):
        for one, other in pairs:
            exchange(one, other)
        turn += 1
    with open("/tmp/turns", "w", encoding="ascii") as file:
        file.write(str(turn))


if not os.path.exists("/tmp/outside"):
    prepare()
if os.fork() == 0:
    os.setsid()
    main()
    os._exit(0)
