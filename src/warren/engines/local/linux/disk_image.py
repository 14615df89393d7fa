"""Disk image of one workspace, as root: sparse ext4, which bounds bytes and files on any host filesystem."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import struct
import subprocess
from dataclasses import dataclass

from warren.engines.local.linux import loop_devices, syscalls

_BLOCK = 4096
_INODE = 256
_INODES_PER_GROUP_MAX = 8 * _BLOCK
_BLOCKS_PER_GROUP = 8 * _BLOCK
_JOURNAL_MIB = 8
_FEATURES = (
    "none,sparse_super,large_file,filetype,extent,64bit,flex_bg,dir_index,ext_attr,huge_file,dir_nlink,extra_isize,"
    "metadata_csum"
)
"""Named one by one, so that no image depends on the host's mke2fs.conf."""
_RESERVED_INODES = 16
_PROGRAM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_FICLONE = 0x40049409
_NICE = 10

_SUPERBLOCK = 1024
_STATE_CLEAN = 1
_STATE_ERRORS = 2
_COMPAT_JOURNAL = 4
_INCOMPAT_RECOVER = 4
_E2FSCK_LEFT_ERRORS = 4


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Used bytes and inodes of a workspace."""

    used_bytes: int
    used_inodes: int


def find_program(name: str) -> str | None:
    """Find a program of e2fsprogs, also outside an ordinary user's PATH."""
    return shutil.which(name, path=_PROGRAM_FOLDERS)


def make_template(path: str, limits_bytes: int, inodes: int, journal: bool) -> None:
    """Make an empty image that `DiskImage.create` copies: room for so many bytes and files besides its own tables."""
    program = find_program("mkfs.ext4")
    if program is None:
        raise RuntimeError("mkfs.ext4 is not installed: `apt-get install e2fsprogs` brings it")
    inodes += _RESERVED_INODES
    blocks = _image_blocks(limits_bytes, inodes, journal=journal)
    groups = max(-(-inodes // _INODES_PER_GROUP_MAX), 1)
    options = ["-q", "-F", "-b", str(_BLOCK), "-I", str(_INODE), "-N", str(inodes), "-m", "0"]
    # WHY: a block group has a maximum of inodes, so many files on a small disk need smaller groups.
    options += ["-g", str(min(_BLOCKS_PER_GROUP, blocks // groups // 8 * 8))]
    options += ["-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0"]
    options += ["-O", _FEATURES + (",has_journal" if journal else "")]
    options += ["-J", f"size={_JOURNAL_MIB}"] if journal else []
    new = f"{path}.{os.getpid()}.new"
    try:
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, blocks * _BLOCK)
            _run([program, *options, new, str(blocks)])
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(new, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)


def _image_blocks(limits_bytes: int, inodes: int, *, journal: bool) -> int:
    """Count the blocks of an image with so much room for files, including what ext4 keeps for itself."""
    wanted = limits_bytes // _BLOCK + 16
    tables = -(-inodes * _INODE // _BLOCK) + 64
    maps = (wanted + tables) // 4096 + 96
    blocks = wanted + tables + maps + (_JOURNAL_MIB << 20) // _BLOCK * journal
    # What ext4 holds back for delayed writes: 2 % of all, at most 4096 blocks.
    return blocks + min(blocks // 49, 4096)


class DiskImage:
    """One workspace's image file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def create(self, template: str) -> None:
        """Copy a template, holes included. Raises FileExistsError when the image exists."""
        source = os.open(template, os.O_RDONLY | os.O_CLOEXEC)
        try:
            target = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _copy_sparse(source, target)
            except OSError as exc:
                os.unlink(self.path)
                raise OSError(exc.errno, f"make the disk image {self.path}: {exc.strerror}") from None
            finally:
                os.close(target)
        finally:
            os.close(source)

    def attach(self) -> int:
        """Return a detached mount of the image, which must not be mounted yet.

        The kernel unmounts it and frees the loop device with the last descriptor and the last mount: nothing is left
        after kill -9.
        """
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            journal = bool(_load_superblock(file).compat & _COMPAT_JOURNAL)
            device, path = loop_devices.attach(file)
        finally:
            os.close(file)
        try:
            return _mount(path, journal=journal)
        finally:
            os.close(device)

    def is_clean(self) -> bool:
        """Whether it was unmounted as it should be; costs one read."""
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _load_superblock(file).clean
        finally:
            os.close(file)

    def repair(self) -> None:
        """Repair the image after an unclean stop. Raises RuntimeError when that fails."""
        program = find_program("e2fsck")
        if program is None:
            raise RuntimeError("e2fsck is not installed: `apt-get install e2fsprogs` brings it")
        code = _run([program, "-p", self.path], accept=range(8))
        if code & _E2FSCK_LEFT_ERRORS:
            _run([program, "-f", "-y", self.path], accept=range(4))


def measure(where: int | str) -> DiskUsage:
    """Measure a mounted workspace, an image or not, by a descriptor or a path in it."""
    at = os.statvfs(where)
    return DiskUsage((at.f_blocks - at.f_bfree) * at.f_frsize, at.f_files - at.f_ffree)


@dataclass(frozen=True, slots=True)
class _Superblock:
    state: int
    compat: int
    incompat: int

    @property
    def clean(self) -> bool:
        # With a journal the state is always clean, and "recover" tells whether it was unmounted.
        return self.state & (_STATE_CLEAN | _STATE_ERRORS) == _STATE_CLEAN and not self.incompat & _INCOMPAT_RECOVER


def _load_superblock(file: int) -> _Superblock:
    data = os.pread(file, 256, _SUPERBLOCK)
    if len(data) < 256 or data[0x38:0x3A] != b"\x53\xef":
        raise OSError(errno.EINVAL, "this file is not an ext4 image")
    (state,) = struct.unpack_from("<H", data, 0x3A)
    compat, incompat = struct.unpack_from("<II", data, 0x5C)
    return _Superblock(state, compat, incompat)


def _mount(device: str, *, journal: bool) -> int:
    context = syscalls.fsopen("ext4")
    try:
        syscalls.fsconfig_string(context, "source", device)
        syscalls.fsconfig_string(context, "errors", "remount-ro")
        # WHY: otherwise a kernel thread fills the holes of every image with the zeros of its inode tables.
        syscalls.fsconfig_flag(context, "noinit_itable")
        if not journal:
            # WHY: an ephemeral workspace need not be flushed to the host's disk by every fsync.
            syscalls.fsconfig_flag(context, "nobarrier")
        syscalls.fsconfig_create(context)
        return syscalls.fsmount(context, syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV)
    finally:
        os.close(context)


def has_another_owner(mount: int, uid: int) -> bool:
    """Whether `set_owner` has to walk through all files."""
    return os.fstat(mount).st_uid not in {0, uid}


def set_owner(mount: int, uid: int, gid: int) -> None:
    """Give the top folder to the owner, and everything below it when it belongs to another uid."""
    top = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=mount)
    try:
        _remove_lost_and_found(top)
        before = os.fstat(top)
        if (before.st_uid, before.st_gid) == (uid, gid):
            return
        if before.st_uid:
            _own_below(top, uid, gid)
        # Last, so that an interrupted walk is repeated.
        os.fchown(top, uid, gid)
    finally:
        os.close(top)


def _remove_lost_and_found(top: int) -> None:
    with contextlib.suppress(OSError):
        # An empty one of root comes from mkfs or e2fsck; one with files comes from a repair and stays.
        if os.stat("lost+found", dir_fd=top, follow_symlinks=False).st_uid == 0:
            os.rmdir("lost+found", dir_fd=top)


def _own_below(top: int, uid: int, gid: int) -> None:
    """Give away all entries below `top`.

    Holds one descriptor whatever the depth, and goes up by "..".
    SAFE BECAUSE: the mount is not attached, so no process can move a folder meanwhile; links are not followed.
    """
    here = os.dup(top)
    pending = [_own_entries(here, uid, gid)]
    try:
        while True:
            if pending[-1]:
                below = _open_folder(pending[-1].pop(), here)
                os.close(here)
                here = below
                pending.append(_own_entries(here, uid, gid))
                continue
            pending.pop()
            if not pending:
                return
            above = _open_folder("..", here)
            os.close(here)
            here = above
    finally:
        os.close(here)


def _open_folder(name: str, dir_fd: int) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)


def _own_entries(folder: int, uid: int, gid: int) -> list[str]:
    """Give away the entries of one folder; returns the names of its folders."""
    folders = []
    for name in os.listdir(folder):
        os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            folders.append(name)
    return folders


def _copy_sparse(source: int, target: int) -> None:
    size = os.fstat(source).st_size
    with contextlib.suppress(OSError):
        fcntl.ioctl(target, _FICLONE, source)
        return
    os.ftruncate(target, size)
    start = end = 0
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as exc:
            # ENXIO: the rest is a hole.
            if exc.errno != errno.ENXIO:
                raise
            return
        end = os.lseek(source, start, os.SEEK_HOLE)
        _copy_range(source, target, start, end)


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    while start < end:
        copied = os.copy_file_range(source, target, end - start, start, start)
        if not copied:
            raise OSError(errno.EIO, "the template ended early")
        start += copied


def _run(argv: list[str], accept: range = range(1)) -> int:
    env = {"LC_ALL": "C", "PATH": _PROGRAM_FOLDERS}
    with subprocess.Popen(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        # WHY: a caller chooses how much work it has, and other sandboxes need the processors.
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        out, err = process.communicate()
    if process.returncode not in accept:
        said = (err or out).decode(errors="replace").strip()
        raise RuntimeError(f"{os.path.basename(argv[0])} failed with {process.returncode}: {said[-500:]}")
    return process.returncode
