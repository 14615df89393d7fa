"""What an operator types to make a layer hold: one command for each reason that this host shows."""

from __future__ import annotations

import errno
import os

_DOCKER = (
    "start the container with `docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined …`"
)
_WITHOUT = "or add it to WARREN_OPTIONAL_LAYERS to do without it"
PERSISTENT = (
    "a persistent workspace has no disk quota without root; "
    "ask for an ephemeral one, run as root, or add disk to WARREN_OPTIONAL_LAYERS to do without"
)
_COUNTERS = {"mount": "mnt"}
"""Namespaces that the kernel's own settings spell otherwise."""


def for_namespace(kind: str, error: int) -> str:
    """Return what lets a namespace of that kind be made, after it failed with that errno."""
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return "run `sysctl -w kernel.unprivileged_userns_clone=1`"
    if error == errno.ENOSPC or _setting(f"user/max_{_COUNTERS.get(kind, kind)}_namespaces") == "0":
        return f"run `sysctl -w user.max_{_COUNTERS.get(kind, kind)}_namespaces=15000`"
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return "run `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`"
    if is_container():
        return _DOCKER
    return f"use a kernel with {kind} namespaces (5.12 or later), and allow them to uid {os.geteuid()}"


def for_proc() -> str:
    """Return what lets /proc be mounted in a user namespace."""
    if is_container():
        return "start the container with `docker run --security-opt systempaths=unconfined …`"
    return "run `umount` for each line of `findmnt -R /proc` below /proc: the kernel refuses while the host's is masked"


def for_group(controller: str) -> str:
    """Return what makes a controller ours to use."""
    if _is_disabled(controller):
        return f"start the host with `cgroup_enable={controller}` on the kernel's command line"
    if os.geteuid() != 0 and os.path.isdir("/run/systemd/system"):
        return f"run it as `systemd-run --user --scope -p Delegate=yes warren …`, {_WITHOUT}"
    if os.geteuid() != 0:
        return f"run it as root, for example `sudo warren …`, {_WITHOUT}"
    if is_container():
        return "start the container with `docker run --privileged --cgroupns=private …`"
    return "run it as `systemd-run --scope -p Delegate=yes warren …`, or `mount -t cgroup2 none /sys/fs/cgroup`"


def for_landlock() -> str:
    """Return what brings Landlock."""
    return f"use kernel 5.19 or later with `lsm=landlock,…` on its command line, {_WITHOUT}"


def for_seccomp() -> str:
    """Return what brings system-call filters."""
    return "use a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64"


def for_capabilities() -> str:
    """Return what lets capabilities be dropped."""
    return _DOCKER if is_container() else "allow user namespaces: they bring the right to drop capabilities for good"


def for_disk(detail: str) -> str:
    """Return what makes a disk image work, after it failed with that sentence."""
    if "mkfs.ext4" in detail:
        return "run `apt-get install e2fsprogs`"
    if is_container():
        return f"start the container with `docker run --privileged …`, {_WITHOUT}"
    return f"run `modprobe loop && modprobe ext4`, {_WITHOUT}"


def is_container() -> bool:
    """Whether this looks like the inside of a container."""
    return os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv")


def _setting(name: str) -> str | None:
    try:
        with open(f"/proc/sys/{name}", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return None


def _is_disabled(controller: str) -> bool:
    try:
        with open("/proc/cgroups", encoding="utf-8") as file:
            rows = [line.split() for line in file]
    except OSError:
        return False
    return any(row[0] == controller and row[-1] == "0" for row in rows)
