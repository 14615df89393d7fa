"""Disk images, made, filled, broken and mended for real."""

from __future__ import annotations

import errno
import glob
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from unit.local.forked import enter_namespaces, errno_of, needs_root, run_in_child
from warren.engines.local.linux import disk_image, mounts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    needs_root,
    pytest.mark.skipif(not os.path.exists("/dev/loop-control"), reason="this host has no loop devices"),
    pytest.mark.skipif(disk_image.find_program("mkfs.ext4") is None, reason="e2fsprogs is not installed"),
]
MIB = 1 << 20
OWNER = 70_001


def _make(
    folder: Path, size_bytes: int = 16 * MIB, inodes: int = 1024, *, journal: bool = False
) -> disk_image.DiskImage:
    template = folder / "template"
    if not template.exists():
        disk_image.make_template(str(template), size_bytes, inodes, journal)
    image = disk_image.DiskImage(str(folder / "image"))
    image.create(str(template))
    return image


def _attach(image: disk_image.DiskImage, uid: int = OWNER, gid: int = OWNER) -> int:
    mount = image.attach()
    disk_image.set_owner(mount, uid, gid)
    return mount


def _is_attached(path: str) -> bool:
    for backing in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            with open(backing, encoding="utf-8") as file:
                if file.read().strip() == path:
                    return True
        except OSError:
            continue
    return False


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()


@pytest.mark.parametrize(
    ("size_bytes", "inodes", "journal"),
    [
        (16 * MIB, 1024, False),
        (16 * MIB, 131_072, True),
        (64 * MIB, 1 << 20, False),
        (2048 * MIB, 131_072, False),
        (2048 * MIB, 131_072, True),
    ],
)
def test_an_image_has_room_for_what_was_asked_and_little_more(
    tmp_path: Path, size_bytes: int, inodes: int, journal: bool
) -> None:
    image = _make(tmp_path, size_bytes, inodes, journal=journal)
    mount = _attach(image)
    at = os.statvfs(mount)
    os.close(mount)

    assert size_bytes <= at.f_bavail * at.f_frsize <= size_bytes * 1.02 + 2 * MIB
    assert inodes <= at.f_favail <= inodes * 1.02 + 512
    assert os.stat(image.path).st_blocks * 512 < 2 * MIB
    _wait_until(lambda: not _is_attached(image.path))


def test_the_top_folder_is_the_owners_and_empty(tmp_path: Path) -> None:
    mount = _attach(_make(tmp_path), OWNER, OWNER + 1)
    top = os.open(".", os.O_RDONLY, dir_fd=mount)
    status, names = os.fstat(top), os.listdir(top)
    os.close(top)
    os.close(mount)

    assert (status.st_uid, status.st_gid, names) == (OWNER, OWNER + 1, [])


def test_bytes_and_files_run_out_at_the_limit(tmp_path: Path) -> None:
    def fill(mount: int) -> list[int]:
        top = os.open(".", os.O_RDONLY, dir_fd=mount)
        big = os.open("big", os.O_WRONLY | os.O_CREAT, dir_fd=top)
        written = 0
        try:
            while written < 64 * MIB:
                written += os.write(big, bytes(MIB))
        except OSError as exc:
            bytes_error = exc.errno or 0
        os.close(big)
        os.unlink("big", dir_fd=top)
        made = 0
        try:
            while made < 5000:
                os.close(os.open(f"file{made}", os.O_WRONLY | os.O_CREAT, dir_fd=top))
                made += 1
        except OSError as exc:
            files_error = exc.errno or 0
        return [written // MIB, bytes_error, made, files_error]

    image = _make(tmp_path)
    mount = _attach(image)
    filled = run_in_child(lambda: fill(mount))
    os.close(mount)

    assert filled[0] in {16, 17}
    assert 1024 <= filled[2] <= 1100
    assert (filled[1], filled[3]) == (errno.ENOSPC, errno.ENOSPC)


def test_what_was_written_is_there_after_detaching_and_attaching_again(tmp_path: Path) -> None:
    image = _make(tmp_path, journal=True)
    for step in ("write", "read"):
        mount = _attach(image)
        flags = os.O_WRONLY | os.O_CREAT if step == "write" else os.O_RDONLY
        file = os.open("file", flags, dir_fd=mount)
        content = os.write(file, b"kept") if step == "write" else os.read(file, 10)
        os.close(file)
        os.close(mount)
        _wait_until(lambda: not _is_attached(image.path))

    assert content == b"kept"


def test_kill_minus_nine_leaves_no_loop_device_and_no_mount(tmp_path: Path) -> None:
    image = _make(tmp_path)
    place = tmp_path / "place"
    place.mkdir()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            mount = _attach(image)
            enter_namespaces()
            mounts.attach(mount, str(place))
            os.write(writer, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    attached = os.read(reader, 1), _is_attached(image.path)
    os.close(reader)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    _wait_until(lambda: not _is_attached(image.path))

    assert attached == (b"x", True)
    assert os.listdir(place) == []


def test_many_processes_attach_at_once(tmp_path: Path) -> None:
    _make(tmp_path)
    children = []
    for number in range(12):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                image = disk_image.DiskImage(str(tmp_path / f"image{number}"))
                image.create(str(tmp_path / "template"))
                os.close(_attach(image))
                code = 0
            finally:
                os._exit(code)
        children.append(pid)

    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 12
    _wait_until(lambda: not any(_is_attached(str(tmp_path / f"image{number}")) for number in range(12)))


def test_a_new_owner_gets_everything_also_deep_down_and_no_link_is_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch()
    image = _make(tmp_path)
    depth = 300

    def build() -> None:
        mount = _attach(image)
        here = os.open(".", os.O_RDONLY, dir_fd=mount)
        os.symlink(str(secret), "link", dir_fd=here)
        for _ in range(depth):
            os.mkdir("d" * 200, dir_fd=here)
            os.chown("d" * 200, OWNER, OWNER, dir_fd=here)
            here = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(os.open("bottom", os.O_WRONLY | os.O_CREAT, dir_fd=here))

    def look() -> list[int]:
        mount = _attach(image, OWNER + 5, OWNER + 5)
        here = os.open(".", os.O_RDONLY, dir_fd=mount)
        owners = [os.stat("link", dir_fd=here, follow_symlinks=False).st_uid, os.fstat(here).st_uid]
        for _ in range(depth):
            here = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
            owners.append(os.fstat(here).st_uid)
        return [*owners, os.stat("bottom", dir_fd=here).st_gid]

    run_in_child(build)
    _wait_until(lambda: not _is_attached(image.path))

    assert set(run_in_child(look)) == {OWNER + 5}
    assert secret.stat().st_uid == 0
    _wait_until(lambda: not _is_attached(image.path))


@pytest.mark.parametrize("journal", [False, True])
def test_an_image_that_was_not_let_go_cleanly_is_mended(tmp_path: Path, journal: bool) -> None:
    image = _make(tmp_path, journal=journal)
    mount = _attach(image)
    file = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=mount)
    os.write(file, b"x" * 100_000)
    os.fsync(file)
    # What the disk would hold had the machine stopped now.
    torn = disk_image.DiskImage(str(tmp_path / "torn"))
    torn.create(image.path)
    os.close(file)
    os.close(mount)
    was_clean = _is_clean(torn.path)
    assert not torn.is_clean()
    torn.repair()

    assert not was_clean
    assert _is_clean(torn.path)
    again = _attach(torn)
    assert disk_image.measure(again).used_inodes >= 10
    os.close(again)
    _wait_until(lambda: not _is_attached(torn.path) and not _is_attached(image.path))


def _is_clean(path: str) -> bool:
    file = os.open(path, os.O_RDONLY)
    try:
        return disk_image._load_superblock(file).clean
    finally:
        os.close(file)


def test_usage_counts_what_is_written(tmp_path: Path) -> None:
    mount = _attach(_make(tmp_path))
    before = disk_image.measure(mount)
    file = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=mount)
    os.write(file, bytes(MIB))
    os.fsync(file)
    after = disk_image.measure(mount)
    os.close(file)
    os.close(mount)

    assert after.used_bytes - before.used_bytes == MIB
    assert after.used_inodes - before.used_inodes == 1


def test_a_file_that_is_no_image_is_refused_and_nothing_is_attached(tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(bytes(MIB))

    assert errno_of(disk_image.DiskImage(str(junk)).attach) == errno.EINVAL
    assert not _is_attached(str(junk))


def test_an_impossible_size_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"mkfs\.ext4 failed"):
        disk_image.make_template(str(tmp_path / "template"), 4096, 2**31, journal=False)

    assert os.listdir(tmp_path) == []


def test_an_image_is_never_made_over_another(tmp_path: Path) -> None:
    image = _make(tmp_path)

    with pytest.raises(FileExistsError):
        image.create(str(tmp_path / "template"))
    assert os.path.getsize(image.path) > 0
