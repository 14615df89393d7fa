"""The one command that helps, by what a host shows."""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

import pytest

from unit.local.fake_host import (
    DELEGATED,
    DOCKER,
    MANAGER,
    PODMAN,
    SYSTEMD,
    UBUNTU,
    USER,
    V1,
    V1_READ_ONLY,
    V2,
    found,
)
from warren.engines.local.probe import remedies

if TYPE_CHECKING:
    from pathlib import Path

POD = {**DOCKER, "var/run/secrets/kubernetes.io/serviceaccount/": ""}
WSL = {"proc/sys/kernel/osrelease": "5.15.1-microsoft-standard-WSL2\n", "proc/self/mountinfo": V1 + V2}
HOSTS = {
    "systemd": SYSTEMD,
    "ubuntu": UBUNTU,
    "docker": DOCKER,
    "podman": PODMAN,
    "pod": POD,
    "wsl": WSL,
    "lxc": {"run/systemd/container": "lxc"},
    "nspawn": {"run/systemd/container": "systemd-nspawn"},
    "plain": {"proc/self/mountinfo": V1},
    "selinux": {**SYSTEMD, "sys/fs/selinux/enforce": "1"},
    "nothing": {},
}


def _command(sentence: str) -> str:
    """Return the first thing between backquotes."""
    return str(re.findall(r"`([^`]+)`", sentence)[0])


@pytest.mark.parametrize("uid", [0, USER])
@pytest.mark.parametrize("name", HOSTS)
def test_a_remedy_speaks_of_containers_only_in_one(tmp_path: Path, name: str, uid: int) -> None:
    host = found(tmp_path, HOSTS[name], uid=uid)
    root = str(tmp_path)
    sentences = [
        *(remedies.for_group(each, host=host, root=root) for each in ("memory", "cpu", "pids")),
        *(remedies.for_namespace("user", error, host=host, root=root) for error in (0, errno.EPERM, errno.EACCES)),
        remedies.for_proc(host=host, root=root),
        *(remedies.for_disk(detail, host=host, root=root) for detail in ("mkfs.ext4 is not installed", "open loop")),
    ]

    for sentence in sentences:
        assert "\n" not in sentence
        assert "--privileged" not in sentence
        if not host.container:
            assert not re.search(r"container|docker|podman", sentence), sentence
        for engine in {"docker", "podman"} - {host.container}:
            assert f"{engine} run" not in sentence


@pytest.mark.parametrize(
    ("name", "uid", "command"),
    [
        (
            "docker",
            0,
            "docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt systempaths=unconfined …",
        ),
        ("docker", USER, "docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined …"),
        ("podman", 0, "podman run --cap-add SYS_ADMIN --security-opt unmask=ALL …"),
        ("podman", USER, "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL …"),
        ("lxc", 0, "lxc config set NAME security.nesting=true"),
    ],
)
def test_namespaces_in_a_container_take_the_rights_with_which_they_were_seen(
    tmp_path: Path, name: str, uid: int, command: str
) -> None:
    host = found(tmp_path, HOSTS[name], uid=uid)

    assert _command(remedies.for_namespace("user", errno.EPERM, host=host, root=str(tmp_path))) == command
    assert _command(remedies.for_proc(host=host, root=str(tmp_path))) == command


def test_a_container_that_apparmor_confines_needs_that_lifted(tmp_path: Path) -> None:
    host = found(tmp_path, {**DOCKER, "proc/self/attr/current": "docker-default (enforce)\n"})

    assert "--security-opt apparmor=unconfined" in remedies.for_proc(host=host, root=str(tmp_path))


def test_a_container_that_selinux_confines_needs_that_lifted(tmp_path: Path) -> None:
    host = found(tmp_path, {**PODMAN, "proc/self/attr/current": "system_u:system_r:container_t:s0:c1,c2"})

    assert "--security-opt label=disable" in remedies.for_proc(host=host, root=str(tmp_path))


def test_a_pod_has_a_security_context(tmp_path: Path) -> None:
    host = found(tmp_path, POD)

    assert _command(remedies.for_proc(host=host)) == (
        "securityContext: {capabilities: {add: [SYS_ADMIN]}, seccompProfile: {type: Unconfined}, procMount: Unmasked}"
    )


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_mnt_namespaces", "0", "user.max_mnt_namespaces=15000"),
    ],
)
def test_a_setting_that_forbids_namespaces_is_named(tmp_path: Path, setting: str, value: str, wanted: str) -> None:
    host = found(tmp_path, {**SYSTEMD, f"proc/sys/{setting}": value}, uid=USER)
    sentence = remedies.for_namespace("mount", errno.EPERM, host=host, root=str(tmp_path))

    assert _command(sentence) == remedies.FIX
    assert wanted in sentence


def test_the_remedy_for_apparmor_is_a_profile_and_never_the_setting(tmp_path: Path) -> None:
    sentence = remedies.for_namespace("user", 0, host=found(tmp_path, UBUNTU, uid=USER), root=str(tmp_path))

    assert _command(sentence) == remedies.FIX
    assert "profile" in sentence
    assert "apparmor_restrict" not in sentence


def test_where_a_profile_cannot_be_entered_by_name_its_path_is_given(tmp_path: Path) -> None:
    unconfined = "proc/sys/kernel/apparmor_restrict_unprivileged_unconfined"
    host = found(tmp_path, {**UBUNTU, "etc/apparmor.d/warren": "", unconfined: "1"}, uid=USER)

    assert _command(remedies.for_namespace("user", 0, host=host, root=str(tmp_path))) == (
        "python3 -m venv --copies /opt/warren/.venv"
    )


def test_a_refusal_by_selinux_is_looked_up(tmp_path: Path) -> None:
    host = found(tmp_path, HOSTS["selinux"], uid=USER)

    assert _command(remedies.for_namespace("user", errno.EACCES, host=host, root=str(tmp_path))).startswith("ausearch")


@pytest.mark.parametrize(
    ("files", "uid", "command"),
    [
        (SYSTEMD, USER, "sudo loginctl enable-linger 1000"),
        ({**SYSTEMD, MANAGER: "", DELEGATED: "memory pids"}, USER, remedies.FIX),
        ({**SYSTEMD, MANAGER: "", DELEGATED: "cpu"}, USER, "systemd-run --user --scope -p Delegate=yes true"),
        ({**SYSTEMD, "proc/self/mountinfo": V1}, USER, f"sudo {remedies.WARREN} …"),
        ({"proc/self/mountinfo": V2}, USER, f"sudo {remedies.WARREN} …"),
        (WSL, USER, "printf '[boot]\\nsystemd=true\\n' | sudo tee -a /etc/wsl.conf"),
        (WSL, 0, "printf '[boot]\\nsystemd=true\\n' | sudo tee -a /etc/wsl.conf"),
        (SYSTEMD, 0, "systemd-run --scope -p Delegate=yes true"),
        ({}, 0, "mount -t cgroup2 none /sys/fs/cgroup"),
        (DOCKER, 0, "mount -o remount,bind,rw /sys/fs/cgroup"),
        ({**DOCKER, "proc/self/mountinfo": V1_READ_ONLY}, 0, "mount -o remount,bind,rw /sys/fs/cgroup/cpu"),
        (
            {**DOCKER, "proc/self/mountinfo": V2},
            0,
            "mkdir /sys/fs/cgroup/init && xargs -rn1 < /sys/fs/cgroup/cgroup.procs > /sys/fs/cgroup/init/cgroup.procs",
        ),
        ({"proc/self/mountinfo": V1}, 0, "grep cpu /proc/cgroups"),
        ({**SYSTEMD, "proc/cgroups": "#name\ncpu 0 1 0\n"}, 0, "cgroup_enable=cpu"),
    ],
)
def test_a_controller_comes_with_the_command_of_that_host(
    tmp_path: Path, files: dict[str, str], uid: int, command: str
) -> None:
    host = found(tmp_path, files, uid=uid)
    said = remedies.for_group("cpu", host=host, root=str(tmp_path))

    assert _command(said).replace(remedies.user_name(USER), "1000") == command
    if uid and "cgroup_enable" not in command:
        assert "WARREN_OPTIONAL_LAYERS" in said


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("usr/bin/apt-get", "apt-get install e2fsprogs"),
        ("usr/bin/dnf", "dnf install e2fsprogs"),
        ("usr/bin/zypper", "zypper install e2fsprogs"),
        ("usr/bin/pacman", "pacman -S e2fsprogs"),
        ("sbin/apk", "apk add e2fsprogs e2fsprogs-extra"),
    ],
)
def test_mkfs_comes_from_the_package_manager_that_is_there(tmp_path: Path, program: str, command: str) -> None:
    host = found(tmp_path, {program: ""})

    assert _command(remedies.for_disk("mkfs.ext4 is not installed", host=host)) == command


@pytest.mark.parametrize(
    ("files", "part"),
    [
        (DOCKER, "--device /dev/loop-control --device-cgroup-rule 'b 7:* rmw' …"),
        (PODMAN, "--cap-add MKNOD --device /dev/loop-control --device-cgroup-rule 'b 7:* rmw' …"),
        (POD, "privileged: true"),
        (SYSTEMD, "modprobe -a loop ext4"),
    ],
)
def test_a_disk_image_needs_loop_devices(tmp_path: Path, files: dict[str, str], part: str) -> None:
    assert part in remedies.for_disk("open /dev/loop-control: …", host=found(tmp_path, files))
