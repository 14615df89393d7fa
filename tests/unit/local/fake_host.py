"""Lays out the files of a host that is another than the one the tests run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.engines.local.linux.host import Host, describe

if TYPE_CHECKING:
    from pathlib import Path

V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
V2_READ_ONLY = "29 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup ro\n"
V1 = "30 23 0:27 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"
V1_READ_ONLY = "30 23 0:27 / /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n"
USER = 1000
MANAGER = f"run/user/{USER}/systemd/private"
DELEGATED = f"sys/fs/cgroup/user.slice/user-{USER}.slice/user@{USER}.service/cgroup.controllers"
SYSTEMD = {
    "run/systemd/system/": "",
    "usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-255.so": "",
    "proc/self/mountinfo": V2,
    "proc/2/comm": "kthreadd\n",
    "usr/bin/apt-get": "",
}
"""A host as people have it."""
DOCKER = {".dockerenv": "", "proc/self/mountinfo": V2_READ_ONLY, "proc/1/comm": "warren\n", "proc/2/comm": "sh\n"}
PODMAN = {"run/.containerenv": "", "proc/self/mountinfo": V2_READ_ONLY, "proc/1/comm": "warren\n"}
UBUNTU = {
    **SYSTEMD,
    "etc/os-release": 'ID=ubuntu\nID_LIKE=debian\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n',
    "proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n",
    "proc/sys/kernel/apparmor_restrict_unprivileged_unconfined": "0\n",
    "proc/self/attr/current": "unconfined\n",
    MANAGER: "",
    DELEGATED: "cpu memory pids\n",
}


def lay_out(root: Path, files: dict[str, str]) -> str:
    """Write the files below `root`; a name that ends with a slash is a folder."""
    for name, text in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def found(root: Path, files: dict[str, str], *, uid: int = 0) -> Host:
    """Describe a host with these files."""
    return describe(lay_out(root, files), uid=uid)
