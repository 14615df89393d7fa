"""Performs a containment plan, step by step. Reads as a table of contents; each mechanism has its own file.

Rules for changes to this file:
1. A step that fails raises; nothing here warns and goes on. The caller ends the process, and with it the sandbox.
2. Nothing follows `seccomp` but `check_sealed`, which reads back the state in force.
3. Arguments come from plan.py only, never from a client or from inside a sandbox.
"""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.engines.local.linux import capabilities, landlock, mounts, namespaces, seccomp, syscalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class ContainmentError(Exception):
    """A step of the plan failed: `step` names it, the message tells why."""

    def __init__(self, step: str, error: BaseException) -> None:
        super().__init__(f"{step}: {error}")
        self.step = step


@dataclass
class Context:
    """The state that steps use besides their arguments."""

    staging: str = ""
    """Where the new root is built; empty once this process lives in it."""
    mount_fd: int = -1
    """The workspace, as a detached mount made by the keeper."""
    device_fds: tuple[int, ...] = ()
    """Device nodes besides the standard ones, as detached mounts made by the keeper."""
    filter: bytes = b""
    """The prebuilt system-call filter."""

    def at(self, path: str) -> str:
        """Return the current path of `path` in the new root."""
        return self.staging + path


def perform(steps: Iterable[tuple[str, dict[str, Any]]], context: Context) -> None:
    """Perform the steps in order. Raises ContainmentError at the first that fails."""
    for act, args in steps:
        try:
            _ACTS[act](context, **args)
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            raise ContainmentError(act, error) from error


def _make_root(context: Context) -> None:
    mounts.private_root()
    mounts.tmpfs(context.staging, size_bytes=1 << 20, inodes=1024, mode=0o755)


def _bind(context: Context, source: str, target: str, *, readonly: bool = True) -> None:
    place = context.at(target)
    if os.path.isdir(source):
        os.makedirs(place, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb"):
            pass
    mounts.bind(os.path.realpath(source), place, readonly=readonly)


def _write(context: Context, path: str, text: str) -> None:
    os.makedirs(os.path.dirname(context.at(path)), exist_ok=True)
    with open(context.at(path), "w", encoding="utf-8") as file:
        file.write(text)


def _make_devices(context: Context, names: Sequence[str]) -> None:
    folder = context.at("/dev")
    os.makedirs(folder)
    for name in names:
        if os.path.exists(f"/dev/{name}"):
            with open(f"{folder}/{name}", "wb"):
                pass

            mounts.bind_device(f"/dev/{name}", f"{folder}/{name}")
    _furnish(folder)


def _furnish(folder: str) -> None:
    for name in ("shm", "pts"):
        os.mkdir(f"{folder}/{name}")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0"}
    links |= {"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
    for name, target in links.items():
        os.symlink(target, f"{folder}/{name}")


def _enter_root(context: Context) -> None:
    old = context.at("/old")
    os.mkdir(old)
    syscalls.pivot_root(context.staging, old)
    os.chdir("/")
    context.staging = ""
    syscalls.umount("/old", syscalls.MNT_DETACH)
    os.rmdir("/old")
    mounts.make_readonly("/")


def _become(_context: Context, uid: int, gid: int) -> None:
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _make_read_only(_context: Context, paths: Sequence[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            # Each gets its own mount: none of them is the top of one.
            mounts.bind(path, path)


def _attach(context: Context, target: str) -> None:
    mounts.attach(context.mount_fd, target)
    os.close(context.mount_fd)


def _add_devices(context: Context, names: Sequence[str], paths: Sequence[str]) -> None:
    """Make the sandbox's own /dev, with the standard devices and those that were passed."""
    # WHY: the /dev that all sandboxes of a zygote share is read-only and has no names of other devices.
    there = [f"/dev/{name}" for name in names if os.path.exists(f"/dev/{name}")]
    standard = [syscalls.open_tree(syscalls.AT_FDCWD, path, syscalls.OPEN_TREE_CLONE) for path in there]
    mounts.tmpfs("/dev", size_bytes=1 << 16, inodes=256)
    for path, fd in zip((*there, *paths), (*standard, *context.device_fds), strict=True):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb"):
            pass
        mounts.attach(fd, path)
        os.close(fd)
    _furnish("/dev")
    syscalls.mount_setattr(syscalls.AT_FDCWD, "/dev", syscalls.MOUNT_ATTR_RDONLY)


def _limit(_context: Context, value: int, **which: str) -> None:
    number = getattr(resource, f"RLIMIT_{which['resource']}")
    hard = resource.getrlimit(number)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(number, (value, value))


def _drop_capabilities(_context: Context) -> None:
    capabilities.drop_all()
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


def _check_sealed(_context: Context, uid: int) -> None:
    """Read back the state in force; a wrong value is a failed step."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    wrong = [name for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(status[name], 16)]
    wrong += [name for name, value in (("NoNewPrivs", "1"), ("Seccomp", "2")) if status.get(name) != value]
    wrong += [name for name in ("Uid", "Gid") if set(status[name].split()) != {str(uid)}]
    if wrong:
        raise RuntimeError(f"the kernel reports {', '.join(f'{name}={status.get(name)}' for name in wrong)}")


_ACTS: dict[str, Callable[..., None]] = {
    "make_root": _make_root,
    "bind": _bind,
    "bind_again": lambda context, source, target: mounts.bind(context.at(source), context.at(target), readonly=False),
    "link": lambda context, path, target: os.symlink(target, context.at(path)),
    "write": _write,
    "make_folder": lambda context, path: os.makedirs(context.at(path), exist_ok=True),
    "make_devices": _make_devices,
    "enter_root": _enter_root,
    "become": _become,
    "proc": lambda context, target: mounts.proc(context.at(target)),
    "mask": lambda _context, paths: mounts.mask(*paths),
    "make_read_only": _make_read_only,
    "tmpfs": lambda context, target, size_bytes, inodes: mounts.tmpfs(context.at(target), size_bytes, inodes, 0o1777),
    "add_devices": _add_devices,
    "devpts": lambda _context, target: mounts.devpts(target),
    "attach": _attach,
    "hide": lambda _context, path: mounts.mask(path),
    "hostname": lambda _context, name: syscalls.sethostname(name),
    "loopback": lambda _context: namespaces.bring_up_loopback(),
    "limit": _limit,
    "enter": lambda _context, path: os.chdir(path),
    "landlock": lambda _context, writable: landlock.restrict(writable),
    "drop_capabilities": _drop_capabilities,
    "seccomp": lambda context: seccomp.install(context.filter),
    "check_sealed": _check_sealed,
}
