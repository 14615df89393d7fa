"""The wrappers say what they tried, and pass what they were given."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from unit.local.forked import enter_namespaces, errno_of, needs_root, run_in_child
from warren.engines.local.linux import namespaces, syscalls

if TYPE_CHECKING:
    from pathlib import Path


def test_a_failure_names_the_call_and_its_target() -> None:
    with pytest.raises(FileNotFoundError, match="umount /nowhere/at/all: No such file"):
        syscalls.umount("/nowhere/at/all")


def test_a_path_with_a_nul_byte_is_refused_before_the_kernel_sees_half_of_it() -> None:
    assert errno_of(syscalls.umount, "/proc\0/x") == errno.EINVAL


def test_a_raw_call_passes_64_bit_numbers(tmp_path: Path) -> None:
    ftruncate = {"x86_64": 77, "aarch64": 46}[syscalls.MACHINE]
    with open(tmp_path / "file", "wb") as file:
        syscalls.syscall(ftruncate, "ftruncate", file.fileno(), 5 << 32)

    assert (tmp_path / "file").stat().st_size == 5 << 32


def test_pivot_root_leaves_the_old_root_behind(tmp_path: Path) -> None:
    def attempt() -> list[object]:
        enter_namespaces(namespaces.CLONE_NEWUSER | namespaces.CLONE_NEWNS)
        syscalls.mount("new", str(tmp_path), "tmpfs", 0, "size=65536")
        os.mkdir(tmp_path / "old")
        syscalls.pivot_root(str(tmp_path), str(tmp_path / "old"))
        os.chdir("/")
        syscalls.umount("/old", syscalls.MNT_DETACH)
        return [os.listdir("/"), os.listdir("/old")]

    assert run_in_child(attempt) == [["old"], []]


def test_the_host_name_is_set_in_the_own_namespace_only() -> None:
    before = os.uname().nodename

    def attempt() -> str:
        enter_namespaces(namespaces.CLONE_NEWUSER | namespaces.CLONE_NEWUTS)
        syscalls.sethostname("sandbox")
        return os.uname().nodename

    assert run_in_child(attempt) == "sandbox"
    assert os.uname().nodename == before


@needs_root
def test_a_filesystem_that_cannot_be_made_says_why_in_the_kernels_words() -> None:
    context = syscalls.fsopen("tmpfs")
    try:
        with pytest.raises(OSError, match=r"fsconfig size=nonsense: .*\(.*size.*\)"):
            syscalls.fsconfig_string(context, "size", "nonsense")
    finally:
        os.close(context)
