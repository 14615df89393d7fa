"""What this kernel lets us use: each layer of isolation tried for real, in a child that is thrown away."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import resource
import secrets
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.domain.errors import InvalidRequest
from warren.engines.local.linux import (
    capabilities,
    devices,
    disk_image,
    landlock,
    mounts,
    namespaces,
    seccomp,
    syscalls,
    uids,
)
from warren.engines.local.linux import host as hosts
from warren.engines.local.linux.cgroups import GroupLimits
from warren.engines.local.linux.fork_trial import Failure, attempt
from warren.engines.local.probe import remedies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from warren.engines.local.linux.cgroups import Cgroups, Group

NAMES = (
    "user",
    "mount",
    "pid",
    "net",
    "ipc",
    "uts",
    "cgroup",
    "nesting",
    "proc",
    "seccomp",
    "landlock",
    "capabilities",
    "no_new_privs",
    "memory",
    "cpu",
    "pids",
    "disk",
    "uid",
    devices.LAYER,
)
"""All layers, by the names that operators use in optional_layers."""
WITHOUT_ASKING = frozenset({"landlock", "uid", devices.LAYER})
"""Layers that not every kernel or user has, on top of others that hold: used where they can be, and recorded.

Without `devices` no sandbox is given a GPU, unless the operator names it optional; no other sandbox needs it.
"""
_LIMITS = GroupLimits(memory_bytes=64 << 20, cpus=0.5, pids=32)
_TOUCHED_BYTES = 4 << 20
_SCRATCH = "/tmp"
"""A folder that is there; what is mounted on it is seen by the child alone."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of isolation on this host."""

    name: str
    holds: bool
    detail: str
    """One sentence: what holds, or why not."""
    fix: str
    """What the operator types to make it hold; empty when it does."""
    stand_in: bool = False
    """Whether something else than usual holds it, which `detail` names."""


def check_names(optional: Iterable[str]) -> None:
    """Raise InvalidRequest for an optional layer that does not exist."""
    unknown = sorted(set(optional) - set(NAMES))
    if unknown:
        raise InvalidRequest(f"unknown layer {unknown[0]!r} in optional_layers: choose from {', '.join(NAMES)}")


def probe(cgroups: Cgroups) -> list[Layer]:
    """Try all layers, those of control groups where `cgroups` are made; a controller that fails is dropped from it."""
    return [
        *_probe_namespaces(),
        *_probe_restrictions(),
        *_probe_groups(cgroups),
        _probe_disk(),
        _probe_uid(),
        _probe_devices(),
    ]


def find_missing(layers: Iterable[Layer], optional: Iterable[str]) -> list[Layer]:
    """List the layers without which no sandbox is made here."""
    dispensable = WITHOUT_ASKING.union(optional)
    return [layer for layer in layers if not layer.holds and layer.name not in dispensable]


def _probe_namespaces() -> list[Layer]:
    layers = []
    for kind, act in _NAMESPACE_ATTEMPTS.items():
        failure = attempt(act)
        fix = "" if failure is None else remedies.for_namespace("user" if kind == "nesting" else kind, failure.number)
        what = "a user namespace inside another" if kind == "nesting" else f"its own {kind} namespace"
        if kind == "mount" and (unusable := hosts.explain_unusable_root()):
            failure, fix = Failure(0, unusable), remedies.UNUSABLE_ROOT
        layers.append(_layer(kind, failure, what, fix))
    return [*layers, _layer("proc", attempt(_try_proc), "/proc of its own processes only", remedies.for_proc())]


def _probe_restrictions() -> list[Layer]:
    version = landlock.abi()
    return [
        _layer("seccomp", attempt(_try_seccomp), "system calls from an allow-list", remedies.for_seccomp()),
        _layer("landlock", attempt(_try_landlock), f"Landlock ABI {version}", remedies.for_landlock()),
        _layer("capabilities", attempt(_try_capabilities), "no capability in any set", remedies.for_capabilities()),
        _layer("no_new_privs", attempt(_try_no_new_privs), "setuid programs gain nothing", "use kernel 3.5 or later"),
    ]


def _layer(name: str, failure: Failure | None, what: str, fix: str) -> Layer:
    if failure is None:
        return Layer(name, holds=True, detail=what, fix="")
    return Layer(name, holds=False, detail=failure.text, fix=fix)


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise OSError(errno.EPERM, sentence)


def _enter(flags: int) -> None:
    outside = os.geteuid()
    syscalls.unshare(namespaces.CLONE_NEWUSER | flags)
    namespaces.write_id_maps(os.getpid(), 0, outside)


def _try_mount() -> None:
    """Make a root, enter it and mount in a namespace below it, with the rights that a keeper has for each."""
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


def _try_proc() -> None:
    _enter(namespaces.CLONE_NEWNS | namespaces.CLONE_NEWPID)
    mounts.private_root()
    failure = attempt(lambda: mounts.proc(_SCRATCH))
    if failure is not None:
        raise OSError(failure.number, failure.text)


_NAMESPACE_ATTEMPTS: dict[str, Callable[[], None]] = {
    "user": lambda: _enter(0),
    "mount": _try_mount,
    "pid": _try_pid,
    "net": _try_net,
    "ipc": lambda: _enter(namespaces.CLONE_NEWIPC),
    "uts": _try_uts,
    "cgroup": lambda: _enter(namespaces.CLONE_NEWCGROUP),
    "nesting": _try_nesting,
}


def _try_seccomp() -> None:
    seccomp.install(seccomp.build_filter())
    try:
        syscalls.unshare(namespaces.CLONE_NEWUSER)
    except OSError as exc:
        _check(exc.errno == errno.EPERM, f"a forbidden system call answers {exc.strerror}")
    else:
        _check(holds=False, sentence="a forbidden system call is not refused")


def _try_landlock() -> None:
    landlock.restrict([])
    try:
        os.close(os.open("/dev/null", os.O_WRONLY))
    except PermissionError:
        return
    _check(holds=False, sentence="a forbidden write is not refused")


def _try_capabilities() -> None:
    _enter(0)
    capabilities.drop_all()
    _check(capabilities.effective() == 0, "capabilities are left after dropping all of them")


def _try_no_new_privs() -> None:
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    _check(syscalls.prctl(syscalls.PR_GET_NO_NEW_PRIVS) == 1, "no_new_privs does not stay set")


def _probe_groups(cgroups: Cgroups) -> list[Layer]:
    """Have a child join a group where those of sandboxes will be, and drop each controller that does not hold."""
    layers = []
    for name, what in (("memory", "bytes"), ("cpu", "processor time"), ("pids", "number of tasks")):
        why = Failure(0, cgroups.missing[name]) if name in cgroups.missing else _try_controller(cgroups, name)
        if why is not None:
            cgroups.drop(name, why.text)
            detail = ""
        else:
            detail = f"{what} bounded by cgroup {'v2' if cgroups.places[name].unified else 'v1'}"
        if name == "pids" and why is not None and attempt(_try_task_limit) is None:
            detail = f"number of tasks bounded by RLIMIT_NPROC in place of a control group: {why.text}"
            layers.append(Layer(name, holds=True, detail=detail, fix="", stand_in=True))
        else:
            layers.append(_layer(name, why, detail, remedies.for_group(name)))
    return layers


def _try_controller(cgroups: Cgroups, controller: str) -> Failure | None:
    """Try one controller in a group of its own; returns why it does not hold."""
    group = cgroups.group(f"probe-{secrets.token_hex(4)}", only=controller)
    try:
        group.make(_LIMITS)
    except OSError as exc:
        return Failure(exc.errno or 0, str(exc.strerror))
    try:
        return attempt(lambda: _TRIALS[controller](group))
    finally:
        with contextlib.suppress(OSError):
            group.kill()
            group.remove()


def _join(group: Group) -> None:
    for descriptor in group.procs_fds():
        os.write(descriptor, b"0")
        os.close(descriptor)
    _check(os.getpid() in group.pids(), "a process that joined a control group is not in it")


def _try_memory(group: Group) -> None:
    _join(group)
    _check(group.limits().memory_bytes == _LIMITS.memory_bytes, "the limit on memory does not stay set")
    # Written to, or the kernel would not have to find any.
    pages = bytearray(os.urandom(4096)) * (_TOUCHED_BYTES // 4096)
    _check((group.usage().memory_bytes or 0) >= len(pages) // 2, "memory that was used is not counted")


def _try_cpu(group: Group) -> None:
    _join(group)
    # On v1 it is less where the group above has less.
    _check(0 < group.limits().cpus <= _LIMITS.cpus, "the limit on processor time does not stay set")


def _try_pids(group: Group) -> None:
    _join(group)
    group.resize(dataclasses.replace(_LIMITS, pids=1))
    _check_no_fork("the limit on tasks does not stop a fork")


_TRIALS: dict[str, Callable[[Group], None]] = {"memory": _try_memory, "cpu": _try_cpu, "pids": _try_pids}


def _try_task_limit() -> None:
    """Check that a limit on tasks set inside a user namespace counts those inside only."""
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


def _probe_disk() -> Layer:
    if os.geteuid() != 0:
        detail = "workspaces in memory, bounded in bytes and files; persistent ones need root"
        return _layer("disk", attempt(_try_mount), detail, remedies.for_namespace("mount", 0))
    failure = attempt(_try_disk)
    return _layer(
        "disk", failure, "bytes and files bounded by a disk image", remedies.for_disk(failure.text if failure else "")
    )


def _try_disk() -> None:
    with tempfile.TemporaryDirectory(prefix="warren-probe-") as folder:
        disk_image.make_template(f"{folder}/template", 16 << 20, 1024, journal=False)
        image = disk_image.DiskImage(f"{folder}/image")
        image.create(f"{folder}/template")
        os.close(image.attach(uids.FIRST, uids.FIRST))


def _probe_uid() -> Layer:
    if os.geteuid() != 0:
        detail = f"all sandboxes share uid {os.geteuid()} of this host"
        return Layer("uid", holds=False, detail=detail, fix=remedies.for_uid())
    failure = attempt(_try_uid)
    return _layer("uid", failure, "each sandbox has a host uid of its own", remedies.for_namespace("user", 0))


def _probe_devices() -> Layer:
    detail = "a sandbox with GPUs opens no other device"
    return _layer(devices.LAYER, devices.try_control(), detail, devices.FIX)


def _try_uid() -> None:
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
