"""Remedies: the command that makes a layer hold, one for each cause found on this host.

Container flags are named only inside a container, and only flags without which the layer was seen to fail
(docs/howto/install.md has the trials).
"""

from __future__ import annotations

import errno
import os
import pwd
import sys
from typing import TYPE_CHECKING

from warren.engines.local.linux import host as hosts

if TYPE_CHECKING:
    from warren.engines.local.linux.host import Host

_WITHOUT = "or add it to WARREN_OPTIONAL_LAYERS to do without it"
WARREN = os.path.join(os.path.dirname(sys.executable), "warren")
"""The command beside this Python, with its folder: it need not be on the PATH, and sudo has its own."""
FIX = f"{WARREN} doctor --fix"
_AS_ROOT = f"sudo {WARREN} …"
PERSISTENT = (
    "a persistent workspace has no disk quota without root; "
    "ask for an ephemeral one, run as root, or add disk to WARREN_OPTIONAL_LAYERS to do without"
)
E2FSPROGS = {
    "apt": "apt-get install e2fsprogs",
    "dnf": "dnf install e2fsprogs",
    "zypper": "zypper install e2fsprogs",
    "pacman": "pacman -S e2fsprogs",
    "apk": "apk add e2fsprogs e2fsprogs-extra",
    "nix": "nix-env -iA nixos.e2fsprogs",
}
"""By package manager, the command that installs mkfs.ext4 and e2fsck."""
UNUSABLE_ROOT = "run Warren in a virtual machine, or in a container, of Debian, Ubuntu, Fedora or Arch"
"""For hosts that keep their programs elsewhere, NixOS for example; no setting and no image changes that."""
LANDLOCK = "boot kernel 5.19 or later with `lsm=landlock,…` on its command line; Warren works without it"
SECCOMP = "run `uname -m`: it takes a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64"
UID = f"run `{_AS_ROOT}`: root alone has other uids to give"
_NAMESPACES_MAX = 15_000
_COUNTERS = {"mount": "mnt"}
"""Namespaces with another name in the kernel's settings."""
_MOVE = (
    "run `mkdir /sys/fs/cgroup/init && xargs -rn1 < /sys/fs/cgroup/cgroup.procs > /sys/fs/cgroup/init/cgroup.procs`: "
    "a group that holds processes has no groups with limits below it"
)
_ELSEWHERE = "use a virtual machine, or a container of Docker or Podman"


def for_namespace(kind: str, error: int, *, host: Host | None = None, root: str = "/") -> str:
    """Return the remedy for a namespace of that kind, after it failed with that errno."""
    host = host or hosts.describe(root)
    if setting := find_sysctl(kind, error, root=root):
        return f"run `{FIX}`, which sets {setting} in /etc/sysctl.d"
    if host.userns_restricted and not host.is_root:
        return _for_apparmor(host)
    if host.container:
        return _for_container(host)
    if error == errno.EACCES and host.selinux == "enforcing":
        return "run `ausearch -m AVC -ts recent` as root: SELinux refused it, and the line names the rule"
    return f"run `uname -r`: it takes kernel 5.12 or later with {kind} namespaces, which uid {host.uid} may make"


def find_sysctl(kind: str, error: int, *, root: str = "/") -> str:
    """Return the sysctl line that allows such namespaces to all users; empty where no setting forbids them."""
    name = _COUNTERS.get(kind, kind)
    if hosts.read(root, "proc/sys/kernel/unprivileged_userns_clone") == "0":
        return "kernel.unprivileged_userns_clone=1"
    most = hosts.read(root, f"proc/sys/user/max_{name}_namespaces")
    if error == errno.ENOSPC or most == "0":
        # Never below the current value.
        return f"user.max_{name}_namespaces={max(_NAMESPACES_MAX, 2 * int(most or 0))}"
    return ""


def for_proc(*, host: Host | None = None, root: str = "/") -> str:
    """Return the remedy for mounting /proc in a user namespace."""
    host = host or hosts.describe(root)
    if host.container and host.container != "wsl2":
        return _for_container(host)
    return "run `findmnt -R /proc` and unmount what is below /proc: the kernel refuses a new one while part is hidden"


def for_group(controller: str, *, host: Host | None = None, root: str = "/") -> str:
    """Return the remedy for a controller."""
    host = host or hosts.describe(root)
    if _is_disabled(root, controller):
        return f"boot with `cgroup_enable={controller}` on the kernel's command line"
    return _for_group_of_root(controller, host) if host.is_root else _for_group_of_user(controller, host)


def for_disk(detail: str, *, host: Host | None = None, root: str = "/") -> str:
    """Return the remedy for disk images, after one failed with that sentence."""
    host = host or hosts.describe(root)
    if "mkfs.ext4" in detail or "e2fsck" in detail:
        return f"run `{E2FSPROGS[host.packages]}`" if host.packages else f"install the package e2fsprogs, {_WITHOUT}"
    if host.container == "kubernetes":
        return f"set `securityContext: {{privileged: true}}` for the pod's container, {_WITHOUT}"
    if host.container in {"docker", "podman"}:
        more = " --cap-add MKNOD" if host.container == "podman" else ""
        flags = f"{_flags(host)}{more} --device /dev/loop-control --device-cgroup-rule 'b 7:* rmw'"
        return f"start the container with `{host.container} run {flags} …`, {_WITHOUT}"
    if host.container in {"lxc", "systemd-nspawn"}:
        return f"add it to WARREN_OPTIONAL_LAYERS, or {_ELSEWHERE}: loop devices of {host.container} were not tried"
    return f"run `modprobe -a loop ext4`, {_WITHOUT}"


def user_name(uid: int) -> str:
    """Return the user's name, or the uid where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


_WSL = (
    "run `printf '[boot]\\nsystemd=true\\n' | sudo tee -a /etc/wsl.conf`, then `wsl --shutdown` in Windows: "
    "systemd gives Warren its control groups"
)


def _for_group_of_root(controller: str, host: Host) -> str:
    if host.container == "wsl2" and not host.has_systemd:
        return _WSL
    if host.cgroups == "none":
        return "run `mount -t cgroup2 none /sys/fs/cgroup`"
    if host.cgroups_read_only:
        folder = "/sys/fs/cgroup" if host.cgroups == "v2" else f"/sys/fs/cgroup/{controller}"
        return f"run `mount -o remount,bind,rw {folder}`, for which {_rights(host)}"
    if host.has_systemd and host.cgroups == "v2":
        return "run `systemd-run --scope -p Delegate=yes true`: it says why systemd gives Warren no control group"
    if host.container and host.cgroups == "v2":
        return _MOVE
    return f"run `grep {controller} /proc/cgroups`: this kernel has it in no hierarchy that is mounted here, {_WITHOUT}"


def _for_group_of_user(controller: str, host: Host) -> str:
    if host.container == "wsl2" and not host.has_systemd:
        return f"{_WSL}, {_WITHOUT}"
    if not host.has_systemd or host.cgroups != "v2":
        why = "only systemd on cgroup v2 delegates control groups to users"
        return f"run `{_AS_ROOT}`: {why}; or do without these limits: `export WARREN_OPTIONAL_LAYERS=memory,cpu`"
    if not host.user_manager:
        name = user_name(host.uid)
        return f"run `sudo loginctl enable-linger {name}`, which starts the user manager that delegates it, {_WITHOUT}"
    if controller not in host.user_controllers:
        return f"run `{FIX}`, which lets systemd delegate {controller} to users, then log in again, {_WITHOUT}"
    scope = "systemd-run --user --scope -p Delegate=yes true"
    return f"run `{scope}`: it says why systemd gives Warren no control group, {_WITHOUT}"


def _for_apparmor(host: Host) -> str:
    if not host.profile:
        return f"run `{FIX}`, which loads an AppArmor profile that lets Warren's keeper make user namespaces"
    if not host.profile_by_name:
        return (
            "run `python3 -m venv --copies /opt/warren/.venv` and install Warren there: on this host AppArmor lets "
            "users enter the profile by that path only, not by its name"
        )
    return "run `sudo apparmor_parser -r /etc/apparmor.d/warren`: the profile is installed, but cannot be entered"


def _for_container(host: Host) -> str:
    if host.container in {"docker", "podman"}:
        return f"start the container with `{host.container} run {_flags(host)} …`"
    if host.container == "kubernetes":
        capabilities = "capabilities: {add: [SYS_ADMIN]}, " if host.is_root else ""
        context = f"{{{capabilities}seccompProfile: {{type: Unconfined}}, procMount: Unmasked}}"
        return f"set `securityContext: {context}` for the pod's container, or `privileged: true` where that is refused"
    if host.container == "lxc":
        return "run `lxc config set NAME security.nesting=true` on the host, and restart the container"
    if host.container == "wsl2":
        return "run `wsl --update` in Windows: WSL2's own kernel has every namespace"
    return f"{_ELSEWHERE}: {host.container} was not tried"


def _flags(host: Host) -> str:
    """Return the smallest set of rights with which every namespace was made, by container engine and user."""
    flags = ["--cap-add SYS_ADMIN"] if host.is_root else []
    if host.container == "docker":
        # WHY for root too: Docker's filter allows mounts with SYS_ADMIN, and forbids pivot_root to all.
        flags += ["--security-opt seccomp=unconfined", "--security-opt systempaths=unconfined"]
    else:
        flags += [] if host.is_root else ["--security-opt seccomp=unconfined"]
        flags += ["--security-opt unmask=ALL"]
    if "(enforce)" in host.confinement:
        flags.append("--security-opt apparmor=unconfined")
    if ":container_t:" in host.confinement:
        flags.append("--security-opt label=disable")
    return " ".join(flags)


def _rights(host: Host) -> str:
    if host.container in {"docker", "podman"}:
        return f"the container is started with `{host.container} run {_flags(host)} …`"
    return "Warren must be root with CAP_SYS_ADMIN"


def _is_disabled(root: str, controller: str) -> bool:
    rows = [line.split() for line in hosts.read(root, "proc/cgroups").splitlines()]
    return any(row[0] == controller and row[-1] == "0" for row in rows)
