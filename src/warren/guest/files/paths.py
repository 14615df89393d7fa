"""Paths beneath the workspace, opened by descriptor, so that no link, rename or race leads out of it.

1. A path from a request is only ever resolved here: by `openat2(RESOLVE_BENEATH)`, or by walking descriptors.
2. Nothing is opened twice by name: a check is made on the descriptor that is used afterwards.
3. Every open is non-blocking and close-on-exec: a FIFO must not stop the agent.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import posixpath
import stat
import time
from typing import Any

from warren.guest.wire.parameters import Refused, invalid

MAX_PATH = 4096
MAX_LINKS = 40
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
PLACE = os.O_PATH | os.O_DIRECTORY

_ALWAYS = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_SYS_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}.get(os.uname().machine, -1)
_RENAME_NOREPLACE = 1

_libc = ctypes.CDLL(None, use_errno=True)

OUTSIDE = "outside_workspace"
"""The code of a refusal for a path that is not in the workspace."""
_CODES = {
    errno.ENOENT: ("not_found", "does not exist"),
    errno.EEXIST: ("conflict", "exists already"),
    errno.ENOTEMPTY: ("conflict", "is a folder that is not empty"),
    errno.ENOTDIR: ("conflict", "is not a folder, or something in its path is not"),
    errno.EISDIR: ("conflict", "is a folder"),
    errno.EACCES: ("conflict", "may not be accessed: its mode forbids it"),
    errno.EPERM: ("conflict", "may not be changed"),
    errno.EXDEV: (OUTSIDE, "leads out of the workspace"),
    errno.ELOOP: ("invalid_request", "is a link where none is allowed, or leads through too many links"),
    errno.ENAMETOOLONG: ("invalid_request", "has a name that is too long"),
    errno.EINVAL: ("invalid_request", "cannot be used like this"),
    errno.ENXIO: ("invalid_request", "is not a regular file or a folder"),
    errno.ENOSPC: ("too_large", "does not fit: the sandbox's disk is full"),
    errno.EDQUOT: ("too_large", "does not fit: the sandbox's disk is full"),
    errno.EIO: ("insufficient_storage", "cannot be kept: the disk of the service is full, or fails"),
    errno.EROFS: ("insufficient_storage", "cannot be kept: the disk of the service was full, so restart the sandbox"),
    errno.EFBIG: ("too_large", "is larger than a file may be"),
}


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def refusal(error: OSError, path: str) -> Refused:
    """Translate an OSError about `path` into a refusal with a code."""
    code, reason = _CODES.get(error.errno or 0, ("conflict", f"cannot be used now: {error.strerror or error}"))
    return Refused(code, f"{printable(path)!r} {reason}")


def printable(path: str) -> str:
    """Make a file name of any bytes safe for a message."""
    return path.encode("utf-8", "replace").decode()


class Workspace:
    """The workspace: its descriptor, and the absolute paths under which programs see it."""

    __slots__ = ("_home", "fd", "path")

    def __init__(self, fd: int, path: str, home: str = "") -> None:
        self.fd = fd
        self.path = path.rstrip("/")
        self._home = home.rstrip("/")
        """The home folder, which counts when it is the same folder."""

    def relative(self, path: str) -> str:
        """Reduce a request's path to one relative to the workspace; `.` is the workspace itself."""
        if "\0" in path:
            raise invalid("a path must not contain a NUL character")
        try:
            size = len(os.fsencode(path))
        except UnicodeEncodeError:
            raise invalid("a path must be valid Unicode") from None
        if size >= MAX_PATH:
            raise invalid(f"a path must be shorter than {MAX_PATH} bytes")
        inside = self._inside(path) if path.startswith("/") else path
        reduced = ".." if inside is None else posixpath.normpath(inside or ".")
        if reduced == ".." or reduced.startswith("../"):
            raise Refused(OUTSIDE, f"{printable(path)!r} is outside of the workspace {self.path}")
        return reduced

    def open(self, path: str, flags: int, *, links: bool = True) -> int:
        """Open what exists at `path`, relative to the workspace; `links=False` refuses any link on the way.

        Raises OSError; EXDEV when the path leads out.
        """
        try:
            return _openat2(self.fd, path, flags, links=links)
        except OSError as error:
            # WHY: EXDEV may be an absolute link that comes back in, EAGAIN a rename that raced with "..";
            # ENOSYS and EPERM are a kernel or a filter without openat2. The walk answers all of them.
            if error.errno not in {errno.EXDEV, errno.EAGAIN, errno.ENOSYS, errno.EPERM}:
                raise
        return self.walk(path, flags, links=links)

    def walk(self, path: str, flags: int, *, links: bool = True) -> int:
        """Open one component at a time; every step is a descriptor, no step follows a link."""
        places = [os.open(".", PLACE | _ALWAYS, dir_fd=self.fd)]
        left = _components(path)
        followed = 0
        try:
            while left:
                name = left.pop()
                if name == "..":
                    if len(places) == 1:
                        raise _leads_out(path)
                    os.close(places.pop())
                    continue
                last = not left
                target = None if last and flags & os.O_NOFOLLOW else _link_target(name, places[-1])
                if target is None:
                    if last:
                        return os.open(name, flags | os.O_NOFOLLOW | _ALWAYS, dir_fd=places[-1])
                    places.append(os.open(name, PLACE | os.O_NOFOLLOW | _ALWAYS, dir_fd=places[-1]))
                    continue
                followed += 1
                if not links or followed > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                left += _components(self._follow(target, places, path))
            return os.open(".", flags & ~os.O_NOFOLLOW | _ALWAYS, dir_fd=places[-1])
        finally:
            for place in places:
                os.close(place)

    def open_parent(self, path: str, *, follow: bool) -> tuple[int, str]:
        """Open the folder that holds `path` and return it with the last name, which need not exist.

        With `follow`, a link at the last name is followed, as long as it stays inside.
        """
        for _ in range(MAX_LINKS):
            head, name = posixpath.split(path.rstrip("/"))
            if name in {"", ".", ".."}:
                raise invalid("the workspace itself cannot be changed like this")
            parent = self.open(head or ".", PLACE)
            target = _link_target(name, parent) if follow else None
            if target is None:
                return parent, name
            os.close(parent)
            inside = self._inside(target) if target.startswith("/") else posixpath.join(head, target)
            if inside is None:
                raise _leads_out(path)
            path = inside
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def make_folders(self, path: str) -> int:
        """Make the folder `path` and every missing one above it; return a descriptor of it."""
        parts = [] if path == "." else path.split("/")
        for count in range(1, len(parts) + 1):
            parent = self.open("/".join(parts[: count - 1]) or ".", PLACE)
            try:
                os.mkdir(parts[count - 1], 0o755, dir_fd=parent)
            except FileExistsError:
                pass
            finally:
                os.close(parent)
        return self.open(path, PLACE)

    def _inside(self, path: str) -> str | None:
        for root in (self.path, self._home):
            if f"{path}/".startswith(f"{root}/") and (root == self.path or self._is_at_home()):
                return path[len(root) + 1 :] or "."
        return None

    def _is_at_home(self) -> bool:
        try:
            return bool(self._home) and os.path.samestat(os.stat(self._home), os.fstat(self.fd))
        except OSError:
            return False

    def _follow(self, target: str, places: list[int], path: str) -> str:
        if not target.startswith("/"):
            return target
        inside = self._inside(target)
        if inside is None:
            raise _leads_out(path)
        while len(places) > 1:
            os.close(places.pop())
        return inside


def entry(path: str, info: os.stat_result, target: str | None = None) -> dict[str, Any]:
    """Build the entry of one file as the wire carries it."""
    kind = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}.get(
        stat.S_IFMT(info.st_mode), "other"
    )
    value = {
        "path": path,
        "type": kind,
        "size": info.st_size,
        "mode": stat.S_IMODE(info.st_mode),
        "mtime_ns": info.st_mtime_ns,
    }
    if target is not None:
        value["target"] = target
    return value


def check_regular(fd: int) -> os.stat_result:
    """Check that an open descriptor is a regular file. Raises OSError."""
    info = os.fstat(fd)
    if stat.S_ISDIR(info.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
    return info


def settle(fd: int, mode: int) -> None:
    """Set the mode of a new file, and a time that no other state of it has. Raises OSError."""
    os.fchmod(fd, mode)
    # The clock of a file system ticks every few milliseconds, and in one tick a file may be replaced twice.
    now = time.time_ns()
    os.utime(fd, ns=(now, now))


def sync_file(fd: int) -> None:
    """Write an open file to the disk. Raises OSError: EIO also where the host's disk is full."""
    try:
        os.fsync(fd)
    except OSError as error:
        # The sandbox's own disk refuses what does not fit before it is written out.
        raise OSError(errno.EIO, error.strerror) from error


def sync_folder(place: int) -> None:
    """Write an open folder to the disk, with the names in it."""
    # One that programs may write to and not read has no other way: it is written with the next one.
    with contextlib.suppress(PermissionError):
        folder = open_at(place, ".", DIRECTORY)
        try:
            sync_file(folder)
        finally:
            os.close(folder)


def open_at(place: int, name: str, flags: int, mode: int = 0o600) -> int:
    """Open one name in an open folder, never through a link."""
    return os.open(name, flags | os.O_NOFOLLOW | _ALWAYS, mode, dir_fd=place)


def rename(source: int, name: str, place: int, to: str, *, replace: bool) -> None:
    """Rename between open folders; without `replace` an existing target is FileExistsError, with no race."""
    if replace:
        os.rename(name, to, src_dir_fd=source, dst_dir_fd=place)
        return
    ctypes.set_errno(0)
    result = _libc.syscall(
        ctypes.c_long(_SYS_RENAMEAT2),
        ctypes.c_int(source),
        os.fsencode(name),
        ctypes.c_int(place),
        os.fsencode(to),
        ctypes.c_uint(_RENAME_NOREPLACE),
    )
    code = ctypes.get_errno()
    if result == 0:
        return
    if code not in {errno.ENOSYS, errno.EINVAL, errno.EPERM}:
        raise OSError(code, os.strerror(code), to)
    # Some file systems cannot do it in one step; only the sandbox's own programs can race with these two.
    try:
        os.lstat(to, dir_fd=place)
    except FileNotFoundError:
        os.rename(name, to, src_dir_fd=source, dst_dir_fd=place)
        return
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), to)


def _openat2(place: int, path: str, flags: int, *, links: bool) -> int:
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | (0 if links else _RESOLVE_NO_SYMLINKS)
    # openat2 refuses flags that open ignores, and O_PATH takes almost none.
    flags |= os.O_CLOEXEC if flags & os.O_PATH else _ALWAYS
    how = _OpenHow(flags, 0, resolve)
    ctypes.set_errno(0)
    # WHY: no library function has it. SAFE BECAUSE: the structure lives on this frame and its size is passed.
    fd = _libc.syscall(
        ctypes.c_long(_SYS_OPENAT2),
        ctypes.c_int(place),
        os.fsencode(path),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return int(fd)


def _components(path: str) -> list[str]:
    """Split a path, last component first."""
    return [part for part in reversed(path.split("/")) if part not in {"", "."}]


def _link_target(name: str, place: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=place)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise


def _leads_out(path: str) -> OSError:
    return OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
