"""Thin wrappers of the system calls that Python lacks; each raises an OSError that names the call."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform

AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

MNT_DETACH = 2

MOUNT_ATTR_RDONLY = 0x01
MOUNT_ATTR_NOSUID = 0x02
MOUNT_ATTR_NODEV = 0x04
MOUNT_ATTR_NOEXEC = 0x08

OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC

PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_READ = 23
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_NO_NEW_PRIVS = 38
PR_GET_NO_NEW_PRIVS = 39
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

MACHINE = platform.machine()

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_OPEN_TREE = 428
_MOVE_MOUNT = 429
_FSOPEN = 430
_FSCONFIG = 431
_FSMOUNT = 432
_CLOSE_RANGE = 436
_MOUNT_SETATTR = 442

_MOVE_MOUNT_F_EMPTY_PATH = 0x04
_FSOPEN_CLOEXEC = 1
_FSMOUNT_CLOEXEC = 1
_FSCONFIG_SET_FLAG = 0
_FSCONFIG_SET_STRING = 1
_FSCONFIG_CMD_CREATE = 6

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def check(result: int, what: str) -> int:
    """Return `result`, or raise OSError with errno and `what` when it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, what: str, *arguments: int | bytes | None) -> int:
    """Make a raw system call. `bytes` are passed as pointers, and None as a null one."""
    # WHY: syscall() is variadic and ctypes would pass a bare int as 32 bits, leaving the upper half undefined.
    passed = [ctypes.c_long(value) if isinstance(value, int) else ctypes.c_char_p(value) for value in arguments]
    return check(_libc.syscall(ctypes.c_long(number), *passed), what)


def _path(path: str) -> bytes:
    # WHY: a C string ends at the first NUL, so "/a\0b" would silently mean "/a".
    if "\0" in path:
        raise OSError(errno.EINVAL, f"a path with a NUL byte: {path!r}")
    return os.fsencode(path)


def mount(source: str | None, target: str, fstype: str | None, flags: int, data: str = "") -> None:
    """Mount a filesystem, bind a folder or change propagation, by flags."""
    result = _libc.mount(
        None if source is None else _path(source),
        _path(target),
        None if fstype is None else _path(fstype),
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    check(result, f"mount {fstype or source or ''} on {target}")


def umount(target: str, flags: int = 0) -> None:
    """Detach the mount at `target`."""
    check(_libc.umount2(_path(target), flags), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root; the former root is at `old` afterwards."""
    syscall(_PIVOT_ROOT[MACHINE], f"pivot_root to {new}", _path(new), _path(old))


def mount_setattr(dirfd: int, path: str, set_flags: int, recursive: bool = False) -> None:
    """Change the attributes of a mount; with an empty path, of the mount `dirfd`."""
    attributes = _MountAttr(attr_set=set_flags)
    flags = (AT_RECURSIVE if recursive else 0) | (AT_EMPTY_PATH if not path else 0)
    data = bytes(attributes)
    syscall(_MOUNT_SETATTR, f"mount_setattr {path or dirfd}", dirfd, _path(path), flags, data, len(data))


def open_tree(dirfd: int, path: str, flags: int) -> int:
    """Open a mount, or with OPEN_TREE_CLONE a detached copy of it; returns a descriptor."""
    flags |= OPEN_TREE_CLOEXEC | (AT_EMPTY_PATH if not path else 0)
    return syscall(_OPEN_TREE, f"open_tree {path or dirfd}", dirfd, _path(path), flags)


def move_mount(from_fd: int, to_path: str) -> None:
    """Attach a detached mount at a path; a link as its last component is not followed."""
    syscall(_MOVE_MOUNT, f"move_mount to {to_path}", from_fd, b"", AT_FDCWD, _path(to_path), _MOVE_MOUNT_F_EMPTY_PATH)


def fsopen(fstype: str) -> int:
    """Open a new filesystem context."""
    return syscall(_FSOPEN, f"fsopen {fstype}", _path(fstype), _FSOPEN_CLOEXEC)


def fsconfig_string(fd: int, key: str, value: str) -> None:
    """Set a parameter of a filesystem context."""
    _fsconfig(fd, _FSCONFIG_SET_STRING, key, value)


def fsconfig_flag(fd: int, key: str) -> None:
    """Set a parameter that has no value."""
    _fsconfig(fd, _FSCONFIG_SET_FLAG, key, None)


def fsconfig_create(fd: int) -> None:
    """Make the filesystem that the context describes."""
    _fsconfig(fd, _FSCONFIG_CMD_CREATE, None, None)


def _fsconfig(fd: int, command: int, key: str | None, value: str | None) -> None:
    what = f"fsconfig {key or 'create'}" + (f"={value}" if value is not None else "")
    try:
        syscall(
            _FSCONFIG,
            what,
            fd,
            command,
            None if key is None else _path(key),
            None if value is None else _path(value),
            0,
        )
    except OSError as exc:
        raise OSError(exc.errno, f"{exc.strerror}{_context_log(fd)}") from None


def _context_log(fd: int) -> str:
    # WHY: the errno is nearly always EINVAL; the context itself holds the reason.
    lines = []
    with contextlib.suppress(OSError):
        while message := os.read(fd, 4096):
            lines.append(message.decode(errors="replace").strip())
    return f" ({'; '.join(lines)})" if lines else ""


def fsmount(fd: int, attr_flags: int) -> int:
    """Return a detached mount of a created filesystem, as a descriptor."""
    return syscall(_FSMOUNT, "fsmount", fd, _FSMOUNT_CLOEXEC, attr_flags)


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    check(_libc.unshare(ctypes.c_int(flags)), f"unshare {flags:#x}")


def prctl(option: int, second: int = 0, third: int = 0, fourth: int = 0, fifth: int = 0) -> int:
    """Set or read an attribute of this process, with plain numbers."""
    numbers = (ctypes.c_ulong(value) for value in (second, third, fourth, fifth))
    return check(_libc.prctl(option, *numbers), f"prctl {option}")


def close_from(first: int) -> None:
    """Close every descriptor from that number on."""
    try:
        syscall(_CLOSE_RANGE, f"close_range from {first}", first, 0xFFFFFFFF, 0)
    except OSError:
        # A container's filter may refuse it. By name, from a listing that is complete before the first is closed.
        for number in [int(name) for name in os.listdir("/proc/self/fd")]:
            if number >= first:
                with contextlib.suppress(OSError):
                    os.close(number)


def sethostname(name: str) -> None:
    """Set the name of this uts namespace."""
    data = name.encode()
    check(_libc.sethostname(data, len(data)), f"sethostname {name}")


def syncfs(fd: int) -> None:
    """Write a whole file system to disk. Raises OSError, also for earlier failures that were not reported yet."""
    check(_libc.syncfs(ctypes.c_int(fd)), "syncfs")
