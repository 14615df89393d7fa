"""Turns a child of the keeper into a zygote: makes the root, drops the host's rights, runs the image's interpreter.

As root it first makes the root, with the host's rights, then enters a user namespace in which it has none of them.
Rootless it must enter a user namespace first to be allowed to mount at all, and then enters a second one. In both cases
the mounts are locked: the zygote cannot undo them.

Three processes: the launcher makes the namespaces and ends; process 1 of the pid namespace is our own code and only
reaps, so that sandboxes outlive their zygote; its child becomes the zygote. Nothing of the image runs before the keeper
has put that child into a control group, and before capabilities and system calls are cut to what a zygote needs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

from warren.engines import procfs
from warren.engines.local.containment import contain, plan
from warren.engines.local.linux import (
    capabilities,
    control_files,
    fd_passing,
    host,
    namespaces,
    seccomp,
    syscalls,
)

ID_COUNT = 65_536
LISTENER_FD = 3
_KEEPER_FD = 4
_TITLE = b"warren: reaps the orphans of a zygote"
_NAMESPACES = (
    namespaces.CLONE_NEWNS
    | namespaces.CLONE_NEWIPC
    | namespaces.CLONE_NEWUTS
    | namespaces.CLONE_NEWNET
    | namespaces.CLONE_NEWPID
)
_START = (
    "import sys; sys.path.append({guest!r}); from warren.guest.system import callbacks; callbacks.settle(); "
    "from warren.engines.local.linux import huge_pages; huge_pages.reserve_heap(); "
    "from warren.engines.local import zygote; zygote.main({args})"
)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Everything a new zygote is started with."""

    image: dict[str, Any]
    """`domain.Image` as plain JSON."""
    env: dict[str, str]
    """Variables that all its sandboxes have, beside the image's."""
    guest_path: str
    version: str
    base_uid: int | None
    """First id of the image's block of host ids, or None when rootless."""
    shared_path: str | None
    """Folder of persistent workspaces, when those are plain folders."""
    driver: dict[str, Any] | None = None
    """Of a zygote whose sandboxes have GPUs: libraries, programs and variables of the driver."""


def launch_zygote(launch: Launch, listener_fd: int, log_fd: int, keeper_fd: int, staging: str) -> NoReturn:
    """Turn this forked child of the keeper into the launcher of a zygote. Never returns; errors are in its log.

    The zygote sends a pidfd of itself on `keeper_fd`, and goes on once the keeper has answered there.
    """
    try:
        os.setsid()
        _keep_descriptors(listener_fd, log_fd, keeper_fd)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o022)
        if launch.base_uid is None:
            _enter_first_namespace()
        else:
            syscalls.unshare(_NAMESPACES)
        first, last = procfs.arguments_at()
        if os.fork() == 0:
            if os.fork() != 0:
                # Named as what it is: in a list of processes it would be another keeper.
                ctypes.memmove(first, _TITLE[: last - first - 1].ljust(last - first, b"\0"), last - first)
                _reap(launch.base_uid)
            _become_zygote(launch, staging)
        os._exit(0)
    except BaseException as error:  # noqa: BLE001  (the keeper reads the last line of the log)
        traceback.print_exc()
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
    finally:
        os._exit(1)


def _reap(base_uid: int | None) -> NoReturn:
    """Be process 1 of the pid namespace: reap its orphans until it is empty, without any right on the host."""
    try:
        syscalls.close_from(0)
        # Rootless it has the host uid of the zygote, and the memory of the keeper.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        if base_uid is not None:
            os.setgroups([])
            os.setresgid(base_uid, base_uid, base_uid)
            os.setresuid(base_uid, base_uid, base_uid)
        while True:
            os.wait()
    finally:
        # ChildProcessError: the last one has ended.
        os._exit(0)


def _become_zygote(launch: Launch, staging: str) -> NoReturn:
    steps = plan.build_root_plan(_root_request(launch), exists=_existing())
    contain.perform([(step.act, dict(step.args)) for step in steps], contain.Context(staging=staging))
    _enter_user_namespace(launch.base_uid)
    with socket.socket(fileno=_KEEPER_FD) as keeper:
        fd_passing.send(keeper, {"t": "launched"}, [os.pidfd_open(os.getpid())])
        if not keeper.recv(1):
            raise EOFError("the keeper ended")
    capabilities.bound_to(_zygote_capabilities())
    seccomp.install(seccomp.build_filter(zygote=True))
    _run_interpreter(launch)


def _zygote_capabilities() -> set[int]:
    """Return the capabilities, in its own user namespace, with which a zygote maps the ids of its children."""
    kept = {capabilities.SETGID, capabilities.SETUID, capabilities.SETFCAP}
    # WHY: where AppArmor restricts user namespaces, one that is made without CAP_SYS_ADMIN has no capabilities.
    return kept | {capabilities.SYS_ADMIN} if host.describe().userns_restricted else kept


def _keep_descriptors(listener_fd: int, log_fd: int, keeper_fd: int) -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    # WHY: duplicated first, so that no target overwrites a descriptor that is still needed.
    high = [os.dup(fd) for fd in (null, log_fd, log_fd, listener_fd, keeper_fd)]
    for target, fd in enumerate(high):
        os.dup2(fd, target, inheritable=target != _KEEPER_FD)
    syscalls.close_from(_KEEPER_FD + 1)


def _root_request(launch: Launch) -> plan.RootRequest:
    image = launch.image
    return plan.RootRequest(
        root=image["root"],
        image_path=image["path"],
        guest_path=launch.guest_path,
        interpreter_prefix=image["interpreter_prefix"],
        interpreter_inside=image["interpreter_inside"],
        shared_path=launch.shared_path,
        driver=launch.driver,
    )


def _existing() -> list[str]:
    own = [path for path in plan.ROOT_FOLDERS if os.path.isdir(path) and not os.path.islink(path)]
    return [*own, *(path for path in plan.HOST_FILES if os.path.exists(path))]


def _enter_first_namespace() -> None:
    uid, gid = os.getuid(), os.getgid()
    syscalls.unshare(namespaces.CLONE_NEWUSER | _NAMESPACES)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        control_files.write(f"/proc/self/{name}", text)


def _enter_user_namespace(base_uid: int | None) -> None:
    """Give up the host's rights. A child that still has them maps the ids."""
    ids = "0 0 1" if base_uid is None else f"0 {base_uid} {ID_COUNT}"
    me = os.getpid()
    entered, tell = os.pipe()
    mapper = os.fork()
    if mapper == 0:
        _map_ids(me, entered, tell, ids, deny_groups=base_uid is None)
    os.close(entered)
    syscalls.unshare(namespaces.CLONE_NEWUSER | namespaces.CLONE_NEWNS)
    os.close(tell)
    _pid, status = os.waitpid(mapper, 0)
    if status != 0:
        raise RuntimeError("the ids of the zygote could not be mapped; the lines above say why")
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    if base_uid is not None:
        os.setgroups([])


def _map_ids(pid: int, entered: int, tell: int, ids: str, *, deny_groups: bool) -> NoReturn:
    status = 1
    try:
        os.close(tell)
        os.read(entered, 1)  # End of file: the parent is in its new namespace.
        if deny_groups:
            control_files.write(f"/proc/{pid}/setgroups", "deny")
        control_files.write(f"/proc/{pid}/uid_map", ids)
        control_files.write(f"/proc/{pid}/gid_map", ids)
        status = 0
    except OSError:
        traceback.print_exc()
    finally:
        os._exit(status)


def _run_interpreter(launch: Launch) -> NoReturn:
    inside = plan.add_driver(plan.build_environment(launch.image["env"], launch.env), launch.driver)
    args = f"{LISTENER_FD}, {list(launch.image['preload'])!r}, {launch.version!r}, {inside!r}"
    env = {
        "PATH": "/opt/image/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "MPLCONFIGDIR": "/tmp/matplotlib",
        # WHY: a thread alive at the time of a fork leaves its locks held for ever in the child.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        **launch.image["env"],
    }
    # WHY here: a kernel is a fork of this process, and the loader reads LD_LIBRARY_PATH once, at the start.
    env = plan.add_driver(env, launch.driver)
    os.chdir("/")
    python = launch.image["python"]
    os.execve(python, [python, "-c", _START.format(guest=plan.GUEST, args=args)], env)  # noqa: S606  (no shell wanted)
