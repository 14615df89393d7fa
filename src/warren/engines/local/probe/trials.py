"""Trials of the layers of isolation. Each raises OSError when a layer does not hold, and changes its own process.

So each runs in a forked child (fork_trial.py), with the rights that keeper, zygote and sandbox have.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import resource
import secrets
import tempfile
from typing import TYPE_CHECKING

from warren.engines.local.linux import capabilities, disk_image, landlock, mounts, namespaces, seccomp, syscalls, uids
from warren.engines.local.linux.cgroup import GroupLimits
from warren.engines.local.linux.fork_trial import Failure, attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.engines.local.linux.cgroup import Group
    from warren.engines.local.linux.cgroups import Cgroups

_LIMITS = GroupLimits(memory_bytes=64 << 20, cpus=0.5, pids=32)
_TOUCHED_BYTES = 4 << 20
_SCRATCH = "/tmp"
"""A folder that always exists; mounts on it are visible to the child alone."""


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise OSError(errno.EPERM, sentence)


def _enter(flags: int) -> None:
    outside = os.geteuid()
    syscalls.unshare(namespaces.CLONE_NEWUSER | flags)
    namespaces.write_id_maps(os.getpid(), 0, outside)


def try_mount() -> None:
    """Make a root, enter it and mount in a namespace below it, as keeper and zygote do."""
    if os.geteuid() == 0:
        syscalls.unshare(namespaces.CLONE_NEWNS)
    else:
        _enter(namespaces.CLONE_NEWNS)
    mounts.private_root()
    mounts.tmpfs(_SCRATCH, 1 << 16, 16)
    for name in ("old", "proc"):
        os.mkdir(f"{_SCRATCH}/{name}")
    mounts.bind("/proc", f"{_SCRATCH}/proc", readonly=False)
    # WHY: a container's filter may allow every mount and forbid this one.
    syscalls.pivot_root(_SCRATCH, f"{_SCRATCH}/old")
    os.chdir("/")
    _enter(namespaces.CLONE_NEWNS)
    mounts.tmpfs("/old", 1 << 16, 16)


def _try_pid() -> None:
    _enter(namespaces.CLONE_NEWPID)
    failure = attempt(lambda: _check(os.getpid() == 1, "the first process of a pid namespace is not number 1"))
    _check(failure is None, failure.text if failure else "")


def _try_net() -> None:
    _enter(namespaces.CLONE_NEWNET)
    namespaces.bring_up_loopback()


def _try_uts() -> None:
    _enter(namespaces.CLONE_NEWUTS)
    syscalls.sethostname("sandbox")
    _check(os.uname().nodename == "sandbox", "the host name of a uts namespace cannot be set")


def _try_nesting() -> None:
    _enter(namespaces.CLONE_NEWNS)
    _enter(namespaces.ALL & ~namespaces.CLONE_NEWUSER)


def try_proc() -> None:
    """Mount a /proc in a new pid namespace."""
    _enter(namespaces.CLONE_NEWNS | namespaces.CLONE_NEWPID)
    mounts.private_root()
    failure = attempt(lambda: mounts.proc(_SCRATCH))
    if failure is not None:
        raise OSError(failure.number, failure.text)


NAMESPACES: dict[str, Callable[[], None]] = {
    "user": lambda: _enter(0),
    "mount": try_mount,
    "pid": _try_pid,
    "net": _try_net,
    "ipc": lambda: _enter(namespaces.CLONE_NEWIPC),
    "uts": _try_uts,
    "cgroup": lambda: _enter(namespaces.CLONE_NEWCGROUP),
    "nesting": _try_nesting,
}


def try_seccomp() -> None:
    """Install the filter and make a forbidden call."""
    seccomp.install(seccomp.build_filter())
    try:
        syscalls.unshare(namespaces.CLONE_NEWUSER)
    except OSError as exc:
        _check(exc.errno == errno.EPERM, f"a forbidden system call answers {exc.strerror}")
    else:
        _check(holds=False, sentence="a forbidden system call is not refused")


def try_landlock() -> None:
    """Restrict writes and make a forbidden one."""
    landlock.restrict([])
    try:
        os.close(os.open("/dev/null", os.O_WRONLY))
    except PermissionError:
        return
    _check(holds=False, sentence="a forbidden write is not refused")


def try_capabilities() -> None:
    """Drop every capability inside a user namespace."""
    _enter(0)
    capabilities.drop_all()
    _check(capabilities.effective() == 0, "capabilities are left after dropping all of them")


def try_no_new_privs() -> None:
    """Set no_new_privs and read it back."""
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    _check(syscalls.prctl(syscalls.PR_GET_NO_NEW_PRIVS) == 1, "no_new_privs does not stay set")


def _join(group: Group) -> None:
    group.add(os.getpid())
    _check(os.getpid() in group.pids(), "a process that joined a control group is not in it")


def _try_memory(group: Group) -> None:
    _join(group)
    _check(group.limits().memory_bytes == _LIMITS.memory_bytes, "the limit on memory does not stay set")
    # Written to, or the kernel would not allocate any.
    pages = bytearray(os.urandom(4096)) * (_TOUCHED_BYTES // 4096)
    _check((group.usage().memory_bytes or 0) >= len(pages) // 2, "memory that was used is not counted")


def _try_cpu(group: Group) -> None:
    _join(group)
    # On v1 the limit is lower where the parent group has less.
    _check(0 < group.limits().cpus <= _LIMITS.cpus, "the limit on processor time does not stay set")


def _try_pids(group: Group) -> None:
    _join(group)
    group.resize(dataclasses.replace(_LIMITS, pids=1))
    _check_no_fork("the limit on tasks does not stop a fork")


_CONTROLLERS: dict[str, Callable[[Group], None]] = {"memory": _try_memory, "cpu": _try_cpu, "pids": _try_pids}


def try_controller(cgroups: Cgroups, controller: str) -> Failure | None:
    """Try one controller in its own group; returns why it does not hold, or None."""
    group = cgroups.group(f"probe-{secrets.token_hex(4)}", only=controller)
    try:
        group.make(_LIMITS)
    except OSError as exc:
        return Failure(exc.errno or 0, str(exc.strerror))
    try:
        return attempt(lambda: _CONTROLLERS[controller](group))
    finally:
        with contextlib.suppress(OSError):
            group.kill()
            group.remove()


def try_task_limit() -> None:
    """Check that RLIMIT_NPROC, set inside a user namespace, counts the tasks inside only."""
    _enter(0)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    capabilities.drop_all()
    _check_no_fork("RLIMIT_NPROC does not stop a fork in a user namespace")


def _check_no_fork(otherwise: str) -> None:
    try:
        pid = os.fork()
    except BlockingIOError:
        return
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    _check(holds=False, sentence=otherwise)


def try_disk() -> None:
    """Make a disk image and mount it."""
    with tempfile.TemporaryDirectory(prefix="warren-probe-") as folder:
        disk_image.make_template(f"{folder}/template", 16 << 20, 1024, journal=False)
        image = disk_image.DiskImage(f"{folder}/image")
        image.create(f"{folder}/template")
        mount_fd = image.attach()
        try:
            disk_image.set_owner(mount_fd, uids.FIRST, uids.FIRST)
        finally:
            os.close(mount_fd)


def try_uid() -> None:
    """Map a host uid of another user into a user namespace."""
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(go[1])
            syscalls.unshare(namespaces.CLONE_NEWUSER)
            os.write(ready[1], b"x")
            os.read(go[0], 1)
        finally:
            os._exit(0)
    try:
        os.close(ready[1])
        _check(os.read(ready[0], 1) == b"x", "no user namespace can be made")
        namespaces.write_id_maps(pid, 0, uids.FIRST)
    finally:
        os.close(go[1])
        os.waitpid(pid, 0)
