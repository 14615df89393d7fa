"""Runs an engine on a host that lacks something: `python poor_host.py LACK DATA_DIR IMAGES_DIR OPTIONAL…`.

Prints one JSON object: what the engine refused with, or the layers in force and what a sandbox answered.
Whatever is taken away is taken from this process and its children only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import stat
import struct
import sys
from typing import TYPE_CHECKING, Any

import anyio

from warren.core.agent.client import AgentClient
from warren.core.images.catalog import Catalog
from warren.domain.errors import Error
from warren.domain.values import ExecRequest, SandboxSpec, Storage, new_id
from warren.engines.local.engine import LocalEngine
from warren.engines.local.linux import mounts, namespaces, syscalls

if TYPE_CHECKING:
    from collections.abc import Callable

ORDINARY = 61_235
_PRCTL = {"x86_64": 157, "aarch64": 167}[syscalls.MACHINE]
_CAPSET = {"x86_64": 126, "aarch64": 91}[syscalls.MACHINE]
_LANDLOCK = 444
_OPEN_TREE = 428
_CLONE3 = 435
_SET_SECCOMP = 22
_SET_NO_NEW_PRIVS = 38


def refuse_call(number: int, first: int | None = None) -> None:
    """Let a system call, or only the one with that first argument, fail with EPERM from now on."""
    skip = 0 if first is None else 2
    code = [(0x20, 0, 0, 0), (0x15, 0, 1 + skip, number)]
    if first is not None:
        code += [(0x20, 0, 0, 16), (0x15, 0, 1, first)]
    code += [(0x06, 0, 0, 0x00050000 | errno.EPERM), (0x06, 0, 0, 0x7FFF0000)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program)))
    if os.geteuid() != 0:
        syscalls.prctl(_SET_NO_NEW_PRIVS, 1)
    syscalls.prctl(_SET_SECCOMP, 2, ctypes.addressof(header))


def hide_control_groups() -> None:
    """Cover the control groups with an empty folder."""
    syscalls.unshare(namespaces.CLONE_NEWNS)
    mounts.private_root()
    syscalls.mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, "size=4096")


def forbid_user_namespaces() -> None:
    """Enter a user namespace in which no other can be made."""
    uid = os.geteuid()
    syscalls.unshare(namespaces.CLONE_NEWUSER)
    namespaces.write_id_maps(os.getpid(), 0, uid)
    with open("/proc/sys/user/max_user_namespaces", "wb", buffering=0) as setting:
        setting.write(b"0")


def become_ordinary(data_dir: str, *needed: str) -> None:
    """Become a user without rights, who can read the needed files even in a closed home folder."""
    if os.geteuid() != 0:
        return
    syscalls.unshare(namespaces.CLONE_NEWNS)
    mounts.private_root()
    closed = {path: top for path in needed if (top := _first_closed(path)) is not None}
    trees = {path: syscalls.open_tree(syscalls.AT_FDCWD, path, _COPY) for path in closed}
    for top in set(closed.values()):
        mounts.tmpfs(top, size_bytes=1 << 20, inodes=1000)
    for path, tree in trees.items():
        os.makedirs(path, exist_ok=True)
        syscalls.move_mount(tree, path)
        os.close(tree)
    os.chown(data_dir, ORDINARY, ORDINARY)
    os.setgroups([])
    os.setresgid(ORDINARY, ORDINARY, ORDINARY)
    os.setresuid(ORDINARY, ORDINARY, ORDINARY)
    # A change of uid makes a process undumpable, and then it cannot write its own id maps.
    syscalls.prctl(4, 1)


_COPY = syscalls.OPEN_TREE_CLONE | syscalls.AT_RECURSIVE


def _first_closed(path: str) -> str | None:
    """Find the topmost folder on the way to `path` that others may not pass through."""
    parts = os.path.realpath(path).split("/")
    for count in range(2, len(parts) + 1):
        place = "/".join(parts[:count])
        if not os.stat(place).st_mode & stat.S_IXOTH:
            return place
    return None


LACKS: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "control groups": hide_control_groups,
    "user namespaces": forbid_user_namespaces,
    "seccomp": lambda: refuse_call(_PRCTL, _SET_SECCOMP),
    "no_new_privs": lambda: refuse_call(_PRCTL, _SET_NO_NEW_PRIVS),
    "capset": lambda: refuse_call(_CAPSET),
    "open_tree": lambda: refuse_call(_OPEN_TREE),
    "clone3": lambda: refuse_call(_CLONE3),
    "landlock": lambda: refuse_call(_LANDLOCK),
}


async def use(data_dir: str, images_dir: str, optional: list[str]) -> dict[str, Any]:
    """Open an engine and use a sandbox of it; the first refusal is the answer."""
    engine = LocalEngine(data_dir, optional_layers=optional)
    try:
        await engine.open()
        handle = await engine.create(SandboxSpec(id=new_id("sbx"), image=Catalog(images_dir).get("python")))
        try:
            channel = await engine.connect(handle)
            async with AgentClient(channel) as agent:
                status = "print(1 + 1); print(open('/proc/self/status').read())"
                result = await agent.run(ExecRequest(id=new_id("exe"), code=status))
            await channel.aclose()
        finally:
            await engine.destroy(handle)
    except Error as error:
        return {"refused": str(error), "code": error.code}
    else:
        record = {
            "layers": list(engine.layers),
            "caveats": list(engine.caveats),
            "persistent": await _try_persistent(engine, images_dir),
            "stdout": result.stdout.decode(),
        }
        await engine.retire()
        return record


async def _try_persistent(engine: LocalEngine, images_dir: str) -> str:
    """Return the error of a request for a persistent workspace; empty when it is made."""
    image = Catalog(images_dir).get("python")
    spec = SandboxSpec(id=new_id("sbx"), image=image, storage=Storage.PERSISTENT)
    try:
        await engine.destroy(await engine.create(spec))
    except Error as error:
        return str(error)
    return ""


def main() -> None:
    """Take something away, then try."""
    lack, data_dir, images_dir, *optional = sys.argv[1:]
    if lack == "root":
        become_ordinary(data_dir, sys.base_prefix, sys.prefix, images_dir, os.path.dirname(os.path.abspath(__file__)))
    else:
        LACKS[lack]()
    print(json.dumps(anyio.run(use, data_dir, images_dir, optional)))
    with contextlib.suppress(OSError):
        shutil.rmtree(os.path.join(data_dir, "local"))


if __name__ == "__main__":
    main()
