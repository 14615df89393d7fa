"""Packs a folder into a tar or zip stream, in a worker. Links are stored as links; special files are left out."""

from __future__ import annotations

import errno
import gzip
import os
import posixpath
import stat
import tarfile
import time
import zipfile
from typing import TYPE_CHECKING, BinaryIO, cast

from warren.guest.files.paths import check_regular, open_at
from warren.guest.files.tree import Found, Walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.guest.files.paths import Workspace

FORMATS = ("tar", "tar.gz", "zip")
BLOCK = 256 << 10
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


def pack(workspace: Workspace, path: str, kind: str, walk: Walk, sink: int) -> int:
    """Write the archive of a folder, or of one file, to `sink`; return how many members it has."""
    with open(sink, "wb", BLOCK, closefd=False) as out:
        writer = _ZipWriter(out) if kind == "zip" else _TarWriter(out, compress=kind == "tar.gz")
        count = 0
        for found, name in _members(workspace, path, walk):
            count += _add(writer, found, name)
        writer.close()
    return count


def _members(workspace: Workspace, path: str, walk: Walk) -> Iterator[tuple[Found, str]]:
    """Find the members of the archive, each with its name relative to the packed folder."""
    try:
        for found in walk:
            yield found, found.path if path == "." else found.path[len(path) + 1 :]
    except NotADirectoryError:
        parent, name = workspace.open_parent(path, follow=True)
        try:
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
            yield Found(path, info, parent, name), posixpath.basename(path)
        finally:
            os.close(parent)


def _add(writer: _TarWriter | _ZipWriter, found: Found, name: str) -> bool:
    """Add one member; False when archives do not hold its kind, or it is gone."""
    mode = found.info.st_mode
    try:
        if stat.S_ISDIR(mode):
            writer.add_folder(name, found.info)
        elif stat.S_ISLNK(mode):
            writer.add_link(name, found.info, os.readlink(found.name, dir_fd=found.place))
        elif stat.S_ISREG(mode):
            fd = open_at(found.place, found.name, os.O_RDONLY)
            with open(fd, "rb") as content:
                writer.add_file(name, check_regular(fd), cast("BinaryIO", _Exact(content)))
        else:
            return False
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP, errno.EINVAL, errno.ENXIO}:
            return False
        error.filename = found.path
        raise
    return True


class _Exact:
    """A file that may shrink while it is read: zeros follow its end, so that the announced size is kept."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        return self._file.read(size).ljust(size, b"\0")


class _TarWriter:
    def __init__(self, out: BinaryIO, *, compress: bool) -> None:
        self._gzip = gzip.GzipFile(fileobj=out, mode="wb", compresslevel=6, mtime=0) if compress else None
        self._tar = tarfile.open(fileobj=self._gzip or out, mode="w|", bufsize=BLOCK)  # noqa: SIM115 - see close()

    def add_folder(self, name: str, info: os.stat_result) -> None:
        self._tar.addfile(self._member(name, info, tarfile.DIRTYPE))

    def add_link(self, name: str, info: os.stat_result, target: str) -> None:
        member = self._member(name, info, tarfile.SYMTYPE)
        member.linkname = target
        self._tar.addfile(member)

    def add_file(self, name: str, info: os.stat_result, content: BinaryIO) -> None:
        member = self._member(name, info, tarfile.REGTYPE)
        member.size = info.st_size
        self._tar.addfile(member, content)

    def close(self) -> None:
        self._tar.close()
        if self._gzip is not None:
            self._gzip.close()

    def _member(self, name: str, info: os.stat_result, kind: bytes) -> tarfile.TarInfo:
        # tarfile keeps every member it has written; of a large tree that is more memory than a worker has.
        self._tar.members.clear()  # type: ignore[attr-defined]
        member = tarfile.TarInfo(name)
        member.type = kind
        member.mode = stat.S_IMODE(info.st_mode) & 0o777
        member.mtime = info.st_mtime
        return member


class _ZipWriter:
    def __init__(self, out: BinaryIO) -> None:
        self._zip = zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, allowZip64=True, compresslevel=6)

    def add_folder(self, name: str, info: os.stat_result) -> None:
        self._zip.writestr(self._member(name + "/", info), b"")

    def add_link(self, name: str, info: os.stat_result, target: str) -> None:
        self._zip.writestr(self._member(name, info), os.fsencode(target))

    def add_file(self, name: str, info: os.stat_result, content: BinaryIO) -> None:
        left = info.st_size
        with self._zip.open(self._member(name, info), "w", force_zip64=left >= 1 << 31) as member:
            while left:
                left -= member.write(content.read(min(left, BLOCK)))

    def close(self) -> None:
        self._zip.close()

    def _member(self, name: str, info: os.stat_result) -> zipfile.ZipInfo:
        when = time.gmtime(max(0, min(info.st_mtime, 1 << 32)))[:6]
        member = zipfile.ZipInfo(name.encode("utf-8", "replace").decode(), max(when, _ZIP_EPOCH))
        member.compress_type = zipfile.ZIP_DEFLATED
        member.external_attr = (info.st_mode & 0xFFFF) << 16
        return member
