"""Mounts of a sandbox. Each has its restrictions before it is attached."""

from __future__ import annotations

import errno
import os
import stat

from warren.engines.local.linux import syscalls

_RESTRICTED = syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV
_NULL_DEVICE = os.makedev(1, 3)
_PTYS_MAX = 128
"""Per sandbox. WHY: all instances share the host's kernel.pty.max, so one sandbox could use up all terminals."""


def bind(source: str, target: str, *, readonly: bool = True) -> None:
    """Show `source`, with everything mounted below it, at `target`; no setuid and no devices in it."""
    attributes = _RESTRICTED | (syscalls.MOUNT_ATTR_RDONLY if readonly else 0)
    _attach_copy(source, target, attributes)


def bind_device(source: str, target: str) -> None:
    """Show one device file at `target`, an existing file."""
    found = os.stat(source, follow_symlinks=False)
    if not stat.S_ISCHR(found.st_mode):
        raise OSError(errno.ENODEV, f"{source} is not a character device")
    _attach_copy(source, target, syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NOEXEC)


def tmpfs(target: str, size_bytes: int, inodes: int, mode: int = 0o755) -> None:
    """Mount an empty filesystem in memory, bounded in bytes and in files."""
    # WHY: tmpfs reads 0 as "no limit".
    if size_bytes <= 0 or inodes <= 0:
        raise RuntimeError(f"the tmpfs on {target} needs a size and a number of inodes above zero")
    options = f"size={size_bytes},nr_inodes={inodes},mode={mode:o}"
    syscalls.mount("tmpfs", target, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)


def proc(target: str) -> None:
    """Mount the processes of this pid namespace."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", target, "proc", flags)


def devpts(target: str) -> None:
    """Mount a terminal filesystem of its own; its `ptmx` is what /dev/ptmx must point to."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NOEXEC
    syscalls.mount("devpts", target, "devpts", flags, f"newinstance,ptmxmode=0666,mode=0600,max={_PTYS_MAX}")


def attach(mount_fd: int, target: str) -> None:
    """Attach a detached mount, made by a more privileged process, at `target`. The descriptor stays open."""
    syscalls.move_mount(mount_fd, target)


def mask(*paths: str) -> None:
    """Hide files and folders behind empty ones. A missing path needs no hiding."""
    # WHY: another file under the name /dev/null would be shown here, writable (CVE-2025-31133).
    # SAFE BECAUSE: the same open descriptor is checked and mounted, not the same name.
    null = os.open("/dev/null", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(null)
        if not stat.S_ISCHR(status.st_mode) or status.st_rdev != _NULL_DEVICE:
            raise OSError(errno.ENODEV, "/dev/null is not the null device")
        for path in paths:
            _mask(path, f"/proc/self/fd/{null}")
    finally:
        os.close(null)


def _mask(path: str, null: str) -> None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        flags = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
        syscalls.mount("tmpfs", path, "tmpfs", flags, "size=4096,nr_inodes=1,mode=555")
    else:
        syscalls.mount(null, path, None, syscalls.MS_BIND)


def make_readonly(path: str) -> None:
    """Make a mount, or a folder through its own mount, read-only; mounts below stay as they are."""
    try:
        syscalls.mount_setattr(syscalls.AT_FDCWD, path, syscalls.MOUNT_ATTR_RDONLY)
    except OSError as exc:
        # WHY: EINVAL means that this is not the top of a mount.
        if exc.errno != errno.EINVAL:
            raise
        bind(path, path)


def private_root() -> None:
    """Stop the propagation of mounts into and out of this namespace."""
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)


def _attach_copy(source: str, target: str, attributes: int) -> None:
    tree = syscalls.open_tree(syscalls.AT_FDCWD, source, syscalls.OPEN_TREE_CLONE | syscalls.AT_RECURSIVE)
    try:
        syscalls.mount_setattr(tree, "", attributes, recursive=True)
        syscalls.move_mount(tree, target)
    except OSError as exc:
        raise OSError(exc.errno, f"bind {source} on {target}: {exc.strerror}") from None
    finally:
        os.close(tree)
