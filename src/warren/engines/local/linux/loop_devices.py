"""Loop devices: a file as a disk. Each frees itself when its last user is gone."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct

_CONTROL = "/dev/loop-control"
_CTL_REMOVE = 0x4C81
_CTL_GET_FREE = 0x4C82
_CONFIGURE = 0x4C0A
_AUTOCLEAR = 4
_ATTEMPTS = 256
_LOST = frozenset({errno.EBUSY, errno.ENOENT, errno.ENXIO, errno.ENODEV})
"""Errors of a free device that another process has taken, or removed, meanwhile."""
_MAJOR = 7


def attach(file: int) -> tuple[int, str]:
    """Attach an open file; returns a descriptor of the device, and its path.

    The device is freed when the last descriptor and the last mount of it are gone, also after kill -9.
    """
    try:
        control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    except OSError as exc:
        raise OSError(exc.errno, f"open {_CONTROL}: {exc.strerror}; `modprobe loop` brings it") from None
    try:
        # WHY: a device that is allocated and not yet opened counts as unused, and other keepers remove it.
        fcntl.flock(control, fcntl.LOCK_EX)
        for _ in range(_ATTEMPTS):
            path = _device(fcntl.ioctl(control, _CTL_GET_FREE))
            try:
                return _open(path, file), path
            except OSError as exc:
                # WHY: another process may have taken the free device meanwhile.
                if exc.errno not in _LOST:
                    raise OSError(exc.errno, f"attach a disk image to {path}: {exc.strerror}") from None
        raise OSError(errno.EBUSY, "no loop device is free: other processes took each of them first")
    finally:
        os.close(control)


def numbers() -> set[int]:
    """List all loop devices, used and unused."""
    names = (name.removeprefix("loop") for name in os.listdir("/sys/block") if name.startswith("loop"))
    return {int(number) for number in names if number.isdigit()}


def remove_unused(before: set[int]) -> None:
    """Remove the unused devices except those of `before`: the kernel adds devices, but never removes them."""
    with contextlib.suppress(OSError), open(_CONTROL, "rb") as control:
        fcntl.flock(control, fcntl.LOCK_EX)
        for number in sorted(numbers() - before):
            # A device in use returns EBUSY.
            with contextlib.suppress(OSError):
                fcntl.ioctl(control, _CTL_REMOVE, number)
                os.unlink(f"/dev/loop{number}")


def _open(path: str, file: int) -> int:
    device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(device, _CONFIGURE, _configuration(file))
    except OSError:
        os.close(device)
        raise
    return device


def _device(number: int) -> str:
    path = f"/dev/loop{number}"
    if not os.path.exists(path):
        # WHY: in a container /dev is a plain tmpfs, in which new devices do not appear.
        with contextlib.suppress(FileExistsError):
            os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(_MAJOR, number))
    return path


def _configuration(file: int) -> bytes:
    """Build struct loop_config: the file, then struct loop_info64 with nothing but the flags."""
    info = bytes(40) + struct.pack("4I", 0, 0, 0, _AUTOCLEAR) + bytes(64 + 64 + 32 + 16)
    return struct.pack("II", file, 0) + info + bytes(64)
