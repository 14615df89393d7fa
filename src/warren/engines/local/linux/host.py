"""Describes this host: its system, init, container, control groups and security modules. Reads files, changes nothing.

Every fact has evidence in a file below `root`, so that tests describe hosts that they laid out themselves.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import struct
import sys
from dataclasses import dataclass

FAMILIES = {
    "debian": ("debian", "ubuntu"),
    "fedora": ("fedora", "rhel", "centos"),
    "suse": ("suse", "opensuse", "sles"),
    "arch": ("arch",),
    "nixos": ("nixos",),
    "alpine": ("alpine",),
}
"""By family, the words in ID and ID_LIKE of os-release that name it."""
_PACKAGES = {"apt-get": "apt", "dnf": "dnf", "zypper": "zypper", "pacman": "pacman", "apk": "apk", "nix-env": "nix"}
_PROGRAM_FOLDERS = ("usr/bin", "usr/sbin", "bin", "sbin", "run/current-system/sw/bin")
_CONTAINERS = {"docker": "docker", "podman": "podman", "lxc": "lxc", "systemd-nspawn": "systemd-nspawn"}
"""Names that systemd and container engines use, by our names."""
PROFILE = "warren"
"""The AppArmor profile of Warren, and its file in /etc/apparmor.d."""
_ELF_INTERPRETER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Facts about a host that need no trial."""

    system: str
    """Its own name, `Debian GNU/Linux 12 (bookworm)`."""
    family: str
    """A key of FAMILIES, or `other`."""
    kernel: str
    machine: str
    init: str
    """`systemd` where it manages this system, else the name of process 1."""
    init_version: int
    """systemd's version; 0 where it is unknown."""
    container: str
    """docker, podman, kubernetes, lxc, systemd-nspawn or wsl2; empty where there is no evidence of one."""
    cgroups: str
    """v2, v1, hybrid (both are mounted) or none."""
    cgroups_read_only: str
    """The first folder of control groups that is mounted read-only; empty where all are writable."""
    confinement: str
    """The label of this process from AppArmor or SELinux; empty where neither runs."""
    userns_restricted: bool
    """Whether AppArmor forbids user namespaces to ordinary users."""
    profile: str
    """Warren's AppArmor profile: `loaded`, `installed` where only the file is known to exist, or empty."""
    profile_by_name: bool
    """Whether an ordinary user may enter an AppArmor profile by naming it."""
    selinux: str
    """enforcing, permissive or off."""
    uid: int
    user_manager: bool
    """Whether systemd's manager of this user can be reached."""
    user_controllers: tuple[str, ...]
    """The controllers that systemd delegates to this user's manager, where it runs."""
    packages: str
    """The package manager: apt, dnf, zypper, pacman, apk, nix, or empty."""

    @property
    def is_root(self) -> bool:
        """Whether Warren runs as root."""
        return self.uid == 0

    @property
    def has_systemd(self) -> bool:
        """Whether systemd manages this system."""
        return self.init == "systemd"


def describe(root: str = "/", *, uid: int | None = None) -> Host:
    """Describe the host whose files are below `root`, for the user with that number."""
    uid = os.geteuid() if uid is None else uid
    release = _load_release(root)
    init, version = _find_init(root)
    cgroups, read_only = _find_cgroups(root)
    manager = f"sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers"
    return Host(
        system=release.get("PRETTY_NAME") or release.get("ID") or "Linux",
        family=_find_family(release),
        kernel=read(root, "proc/sys/kernel/osrelease"),
        machine=os.uname().machine,
        init=init,
        init_version=version,
        container=_find_container(root),
        cgroups=cgroups,
        cgroups_read_only=read_only,
        confinement=read(root, "proc/self/attr/current"),
        userns_restricted=read(root, "proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1",
        profile=_find_profile(root),
        profile_by_name=read(root, "proc/sys/kernel/apparmor_restrict_unprivileged_unconfined") != "1",
        selinux={"1": "enforcing", "0": "permissive"}.get(read(root, "sys/fs/selinux/enforce"), "off"),
        uid=uid,
        user_manager=_exists(root, f"run/user/{uid}/systemd/private"),
        user_controllers=tuple(read(root, manager).split()),
        packages=next((_PACKAGES[name] for name in _PACKAGES if _has_program(root, name)), ""),
    )


def explain_unusable_root(root: str = "/", *, python: str = "") -> str:
    """Return why sandboxes cannot use this host's programs; empty where they can.

    A sandbox sees /usr, /bin, /lib, /lib64 and /sbin of the host, so the interpreter's loader must be there.
    """
    python = os.path.realpath(python or sys.executable)
    loader = _load_elf_interpreter(python)
    if loader and not _is_shown(root, loader):
        return f"a sandbox sees /usr of this host, and the loader of {python} is {os.path.realpath(loader)}"
    if not any(_exists(root, f"{folder}/sh") for folder in ("usr/bin", "bin")):
        return "a sandbox sees /usr and /bin of this host, and there is no shell in them"
    return ""


def _is_shown(root: str, loader: str) -> bool:
    found = os.path.realpath(os.path.join(root, loader.lstrip("/")))
    folders = [os.path.realpath(os.path.join(root, name)) for name in ("usr", "bin", "lib", "lib64", "sbin")]
    return any(found.startswith(f"{folder}/") for folder in folders if folder != os.path.realpath(root))


def _load_elf_interpreter(program: str) -> str:
    """Read the path of a program's loader from its ELF header; empty for a static program, or another file."""
    with contextlib.suppress(OSError, struct.error), open(program, "rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            return ""
        (table,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        for number in range(count):
            file.seek(table + number * size)
            kind, _flags, offset, _virtual, _physical, length = struct.unpack("<IIQQQQ", file.read(40))
            if kind == _ELF_INTERPRETER:
                file.seek(offset)
                return os.fsdecode(file.read(min(length, 4096)).rstrip(b"\0"))
    return ""


def _load_release(root: str) -> dict[str, str]:
    text = read(root, "etc/os-release") or read(root, "usr/lib/os-release")
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, value in pairs}


def _find_family(release: dict[str, str]) -> str:
    words = f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".lower().split()
    stems = [word.split("-")[0] for word in words]
    return next((family for word in stems for family, names in FAMILIES.items() if word in names), "other")


def _find_init(root: str) -> tuple[str, int]:
    # WHY this folder: sd_booted(3) checks it, and in a container the name of process 1 proves nothing.
    if not os.path.isdir(os.path.join(root, "run/systemd/system")):
        return read(root, "proc/1/comm") or "unknown", 0
    for folder in ("usr/lib/systemd", "usr/lib64/systemd", "lib/systemd", "usr/lib/*/systemd", "lib/*/systemd"):
        for path in sorted(glob.glob(os.path.join(glob.escape(root), folder, "libsystemd-shared-*.so"))):
            if found := re.search(r"libsystemd-shared-(\d+)", path):
                return "systemd", int(found[1])
    return "systemd", 0


def _find_container(root: str) -> str:
    environment = dict(
        pair.split("=", 1) for pair in read(root, "proc/1/environ").split("\0") if "=" in pair
    )  # Root's alone to read.
    if "KUBERNETES_SERVICE_HOST" in environment or _exists(root, "var/run/secrets/kubernetes.io/serviceaccount"):
        return "kubernetes"
    named = read(root, "run/systemd/container") or environment.get("container", "")
    if named in _CONTAINERS:
        return _CONTAINERS[named]
    # WHY the kernel's threads: a virtual machine made from a container's files has its mark, but sees all processes.
    if read(root, "proc/2/comm") != "kthreadd":
        if _exists(root, "run/.containerenv"):
            return "podman"
        if _exists(root, ".dockerenv"):
            return "docker"
    return "wsl2" if "microsoft" in read(root, "proc/sys/kernel/osrelease").lower() else ""


def _find_cgroups(root: str) -> tuple[str, str]:
    """Return the mode, and the first folder that is mounted read-only."""
    kinds, read_only = set(), ""
    for line in read(root, "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind = after.split(" ")[0]
        if kind not in {"cgroup", "cgroup2"}:
            continue
        kinds.add(kind)
        fields = before.split(" ")
        if not read_only and "ro" in fields[5].split(","):
            read_only = fields[4]
    mode = {("cgroup",): "v1", ("cgroup2",): "v2", ("cgroup", "cgroup2"): "hybrid"}.get(tuple(sorted(kinds)), "none")
    return mode, read_only


def _find_profile(root: str) -> str:
    loaded = read(root, "sys/kernel/security/apparmor/profiles")
    if any(line.split(" (")[0] == PROFILE for line in loaded.splitlines()):
        return "loaded"
    return "installed" if _exists(root, f"etc/apparmor.d/{PROFILE}") else ""


def _has_program(root: str, name: str) -> bool:
    return any(_exists(root, f"{folder}/{name}") for folder in _PROGRAM_FOLDERS)


def _exists(root: str, path: str) -> bool:
    return os.path.lexists(os.path.join(root, path))


def read(root: str, path: str) -> str:
    """Read a small file; empty where it is missing or may not be read."""
    try:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20).strip("\0 \n")
    except OSError:
        return ""
