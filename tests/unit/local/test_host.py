"""The description of a host from its files."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from unit.local.fake_host import DOCKER, MANAGER, PODMAN, SYSTEMD, UBUNTU, USER, V1, V2, found, lay_out
from warren.engines.local.linux.host import describe, explain_unusable_root

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("release", "family"),
    [
        ("ID=debian\n", "debian"),
        ("ID=linuxmint\nID_LIKE='ubuntu debian'\n", "debian"),
        ("ID=fedora\n", "fedora"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "fedora"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "suse"),
        ("ID=manjaro\nID_LIKE=arch\n", "arch"),
        ("ID=nixos\n", "nixos"),
        ("ID=alpine\n", "alpine"),
        ("ID=slackware\n", "other"),
        ("", "other"),
    ],
)
def test_the_family_comes_from_os_release(tmp_path: Path, release: str, family: str) -> None:
    assert found(tmp_path, {"etc/os-release": release}).family == family


def test_a_host_as_people_have_it(tmp_path: Path) -> None:
    host = found(tmp_path, UBUNTU, uid=USER)

    assert (host.system, host.init, host.init_version, host.cgroups) == ("Ubuntu 24.04.1 LTS", "systemd", 255, "v2")
    assert (host.container, host.packages, host.selinux) == ("", "apt", "off")
    assert host.userns_restricted
    assert host.user_manager
    assert host.user_controllers == ("cpu", "memory", "pids")
    assert (host.profile, host.profile_by_name) == ("", True)


@pytest.mark.parametrize(
    ("files", "container"),
    [
        (DOCKER, "docker"),
        (PODMAN, "podman"),
        ({**DOCKER, "var/run/secrets/kubernetes.io/serviceaccount/": ""}, "kubernetes"),
        ({"proc/1/environ": "PATH=/bin\0KUBERNETES_SERVICE_HOST=10.0.0.1\0"}, "kubernetes"),
        ({"proc/1/environ": "container=lxc\0"}, "lxc"),
        ({**SYSTEMD, "run/systemd/container": "systemd-nspawn\n"}, "systemd-nspawn"),
        ({"proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n"}, "wsl2"),
        (SYSTEMD, ""),
        ({}, ""),
    ],
)
def test_a_container_is_named_by_its_engine(tmp_path: Path, files: dict[str, str], container: str) -> None:
    assert found(tmp_path, files).container == container


def test_a_virtual_machine_made_from_a_containers_files_is_none(tmp_path: Path) -> None:
    assert found(tmp_path, {".dockerenv": "", "proc/2/comm": "kthreadd\n"}).container == ""


@pytest.mark.parametrize(("mounts", "mode"), [(V2, "v2"), (V1, "v1"), (V1 + V2, "hybrid"), ("", "none")])
def test_control_groups_are_those_that_are_mounted(tmp_path: Path, mounts: str, mode: str) -> None:
    host = found(tmp_path, {"proc/self/mountinfo": mounts})

    assert (host.cgroups, host.cgroups_read_only) == (mode, "")


def test_control_groups_that_cannot_be_written_to_are_named(tmp_path: Path) -> None:
    assert found(tmp_path, DOCKER).cgroups_read_only == "/sys/fs/cgroup"


def test_without_systemd_the_init_is_what_process_1_is_called(tmp_path: Path) -> None:
    assert found(tmp_path, {"proc/1/comm": "runit\n"}).init == "runit"


def test_systemd_of_a_fedora_has_its_version_in_lib64(tmp_path: Path) -> None:
    library = "usr/lib64/systemd/libsystemd-shared-257.4-1.fc42.so"

    assert found(tmp_path, {"run/systemd/system/": "", library: ""}).init_version == 257


@pytest.mark.parametrize(
    ("files", "profile"),
    [
        ({"sys/kernel/security/apparmor/profiles": "man_filter (enforce)\nwarren (unconfined)\n"}, "loaded"),
        ({"sys/kernel/security/apparmor/profiles": "warrenty (enforce)\n"}, ""),
        ({"etc/apparmor.d/warren": ""}, "installed"),
    ],
)
def test_the_profile_is_found_where_apparmor_has_it(tmp_path: Path, files: dict[str, str], profile: str) -> None:
    assert found(tmp_path, files).profile == profile


@pytest.mark.parametrize(("enforce", "mode"), [("1", "enforcing"), ("0", "permissive")])
def test_selinux_says_whether_it_enforces(tmp_path: Path, enforce: str, mode: str) -> None:
    assert found(tmp_path, {"sys/fs/selinux/enforce": enforce}).selinux == mode


@pytest.mark.parametrize(
    ("program", "packages"),
    [
        ("usr/bin/dnf", "dnf"),
        ("usr/bin/pacman", "pacman"),
        ("sbin/apk", "apk"),
        ("usr/bin/zypper", "zypper"),
        ("run/current-system/sw/bin/nix-env", "nix"),
    ],
)
def test_the_package_manager_is_the_one_that_is_there(tmp_path: Path, program: str, packages: str) -> None:
    assert found(tmp_path, {program: ""}).packages == packages


def test_a_manager_of_another_user_is_none_of_ours(tmp_path: Path) -> None:
    assert not found(tmp_path, {MANAGER: ""}, uid=USER + 1).user_manager


def test_this_host_has_a_kernel_and_is_described_twice_alike() -> None:
    assert describe() == describe()
    assert describe().kernel == os.uname().release


def test_the_root_of_this_host_is_usable() -> None:
    assert explain_unusable_root() == ""


def test_a_root_that_keeps_its_loader_elsewhere_is_refused(tmp_path: Path) -> None:
    """As NixOS does: /lib64 leads into the store, and /usr holds `env` alone."""
    loader = os.path.realpath("/lib64/ld-linux-x86-64.so.2")
    if not os.path.exists(loader):
        pytest.skip("this machine is no x86_64 with glibc")
    root = lay_out(tmp_path, {"usr/bin/env": "", "bin/sh": "", "nix/store/glibc/": "", "lib64/": ""})
    shutil.copy(loader, tmp_path / "nix/store/glibc/ld-linux-x86-64.so.2")
    (tmp_path / "lib64/ld-linux-x86-64.so.2").symlink_to(tmp_path / "nix/store/glibc/ld-linux-x86-64.so.2")

    assert "and the loader of" in explain_unusable_root(root, python=sys.executable)


def test_a_root_whose_bin_is_no_link_is_usable(tmp_path: Path) -> None:
    files = {"usr/bin/env": "", "bin/sh": "", "lib64/ld-linux-x86-64.so.2": "", "lib/ld-linux-aarch64.so.1": ""}

    assert explain_unusable_root(lay_out(tmp_path, files), python=sys.executable) == ""


def test_a_root_without_a_shell_is_refused(tmp_path: Path) -> None:
    (tmp_path / "static").write_bytes(b"")

    assert "no shell" in explain_unusable_root(str(tmp_path), python=str(tmp_path / "static"))
