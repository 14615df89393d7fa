"""Mounts, tried for real in a namespace of a forked child."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from unit.local.forked import enter_namespaces, errno_of, needs_root, run_in_child
from warren.engines.local.linux import mounts, namespaces, syscalls

if TYPE_CHECKING:
    from pathlib import Path

_MOUNT_NAMESPACES = namespaces.CLONE_NEWUSER | namespaces.CLONE_NEWNS | namespaces.CLONE_NEWIPC


def test_a_bind_is_read_only_and_without_devices_also_in_what_is_mounted_below(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "below").mkdir(parents=True)
    target.mkdir()

    def attempt() -> list[int]:
        enter_namespaces(_MOUNT_NAMESPACES)
        mounts.tmpfs(f"{source}/below", 4096, 16)
        mounts.bind(str(source), str(target))
        flags = os.statvfs(f"{target}/below").f_flag
        wanted = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV
        return [
            errno_of(os.mkdir, f"{target}/new"),
            errno_of(os.mkdir, f"{target}/below/new"),
            errno_of(os.mkdir, f"{source}/new"),
            int(flags & wanted == wanted),
        ]

    assert run_in_child(attempt) == [errno.EROFS, errno.EROFS, 0, 1]


def test_a_writable_bind_can_be_written(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()

    def attempt() -> None:
        enter_namespaces(_MOUNT_NAMESPACES)
        mounts.bind(str(source), str(target), readonly=False)
        os.mkdir(target / "new")

    run_in_child(attempt)

    assert (source / "new").is_dir()


def test_a_bound_device_works_and_a_file_is_not_taken_for_one(tmp_path: Path) -> None:
    place = tmp_path / "zero"
    place.touch()

    def attempt() -> list[object]:
        enter_namespaces(_MOUNT_NAMESPACES)
        refused = errno_of(mounts.bind_device, "/etc/passwd", str(place))
        mounts.bind_device("/dev/zero", str(place))
        with open(place, "rb") as file:
            return [refused, file.read(4).hex()]

    assert run_in_child(attempt) == [errno.ENODEV, "00000000"]


def test_a_tmpfs_is_bounded_in_bytes_and_in_files(tmp_path: Path) -> None:
    def attempt() -> list[object]:
        enter_namespaces(_MOUNT_NAMESPACES, inside_id=1000)
        mounts.tmpfs(str(tmp_path), 1 << 20, 4, 0o700)
        status = os.stat(tmp_path)
        with open(tmp_path / "big", "wb", buffering=0) as file:
            written = file.write(bytes(2 << 20))
            full = errno_of(file.write, b"x" * 4096)
        made = [errno_of(os.mkdir, tmp_path / str(number)) for number in range(4)]
        return [stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, written, full, made[-1]]

    assert run_in_child(attempt) == [0o700, 1000, 1000, 1 << 20, errno.ENOSPC, errno.ENOSPC]


@pytest.mark.parametrize(("size_bytes", "inodes"), [(0, 16), (4096, 0)])
def test_a_tmpfs_without_a_bound_is_refused(size_bytes: int, inodes: int) -> None:
    with pytest.raises(RuntimeError, match="above zero"):
        mounts.tmpfs("/nowhere", size_bytes, inodes)


def test_proc_shows_only_the_own_pid_namespace(tmp_path: Path) -> None:
    def attempt() -> list[str]:
        enter_namespaces(namespaces.ALL)

        def inside() -> list[str]:
            mounts.proc(str(tmp_path))
            return [name for name in os.listdir(tmp_path) if name.isdigit()]

        found: list[str] = run_in_child(inside)
        return found

    assert run_in_child(attempt) == ["1"]


def test_devpts_gives_terminals_of_its_own(tmp_path: Path) -> None:
    def attempt() -> list[object]:
        enter_namespaces(_MOUNT_NAMESPACES)
        mounts.devpts(str(tmp_path))
        before = sorted(os.listdir(tmp_path))
        master = os.open(tmp_path / "ptmx", os.O_RDWR | os.O_NOCTTY)
        after = sorted(os.listdir(tmp_path))
        os.close(master)
        return [before, after]

    assert run_in_child(attempt) == [["ptmx"], ["0", "ptmx"]]


def test_masked_files_and_folders_are_empty_and_what_is_absent_needs_no_mask(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "secret").write_text("secret")
    (tmp_path / "file").write_text("secret")

    def attempt() -> list[object]:
        enter_namespaces(_MOUNT_NAMESPACES)
        for name in ("folder", "file", "absent"):
            mounts.mask(str(tmp_path / name))
        with open(tmp_path / "file", "rb") as file:
            content = file.read().decode()
        return [content, os.listdir(tmp_path / "folder"), errno_of(os.mkdir, tmp_path / "folder" / "new")]

    assert run_in_child(attempt) == ["", [], errno.EROFS]


def test_a_mask_refuses_a_null_device_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "null").touch()
    (tmp_path / "file").write_text("secret")

    def attempt() -> int:
        enter_namespaces(_MOUNT_NAMESPACES)
        mounts.bind(str(tmp_path / "dev"), "/dev")
        return errno_of(mounts.mask, str(tmp_path / "file"))

    assert run_in_child(attempt) == errno.ENODEV


def test_read_only_works_on_a_mount_and_on_a_folder_inside_one(tmp_path: Path) -> None:
    def attempt() -> list[int]:
        enter_namespaces(_MOUNT_NAMESPACES)
        mounts.tmpfs(str(tmp_path), 1 << 20, 64)
        for name in ("folder", "other"):
            os.mkdir(tmp_path / name)
        mounts.make_readonly(str(tmp_path / "folder"))
        folder = [errno_of(os.mkdir, tmp_path / "folder" / "a"), errno_of(os.mkdir, tmp_path / "other" / "a")]
        mounts.make_readonly(str(tmp_path))
        return [*folder, errno_of(os.mkdir, tmp_path / "other" / "b")]

    assert run_in_child(attempt) == [errno.EROFS, 0, errno.EROFS]


@needs_root
def test_a_detached_mount_made_by_a_privileged_process_is_attached_in_a_user_namespace(tmp_path: Path) -> None:
    def attempt() -> list[object]:
        context = syscalls.fsopen("tmpfs")
        syscalls.fsconfig_string(context, "size", "65536")
        syscalls.fsconfig_create(context)
        made = syscalls.fsmount(context, syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV)
        enter_namespaces(namespaces.ALL)
        mounts.attach(made, str(tmp_path))
        os.mkdir(tmp_path / "new")
        return [os.listdir(tmp_path), os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize]

    assert run_in_child(attempt) == [["new"], 65536]


def test_what_is_mounted_in_a_child_is_not_seen_outside(tmp_path: Path) -> None:
    def attempt() -> None:
        enter_namespaces(_MOUNT_NAMESPACES)
        mounts.tmpfs(str(tmp_path), 4096, 16)
        (tmp_path / "inside").mkdir()

    run_in_child(attempt)

    assert os.listdir(tmp_path) == []
