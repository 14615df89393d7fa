"""Unpacks a tar or zip stream into the workspace, in a worker. An archive is hostile.

1. A member's name is checked here, not by tarfile's filters: relative, no `..`, no link or foreign folder in its path.
   Every step is one name in an open folder, made exclusively, never through a link.
2. Everything is made in a hidden folder beside its target and moved there after the whole archive was read and checked.
   A bad member, a full disk or a lost gateway therefore leaves the workspace as it was.
3. A symbolic link may climb only at its beginning, and not above the top. Leading `..` of a folder whose depth we
   know cannot be fooled by other links; `..` after a name can (the class of CVE-2025-4517).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
import zipfile
from typing import IO, TYPE_CHECKING

from warren.guest.files.archive import BLOCK
from warren.guest.files.paths import (
    MAX_PATH,
    PLACE,
    Workspace,
    open_at,
    printable,
    refusal,
    rename,
    sync_file,
    sync_folder,
)
from warren.guest.files.tree import delete_tree
from warren.guest.wire.parameters import Refused, invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_MEMBERS = 200_000


def unpack(workspace: Workspace, path: str, kind: str, temporary: str, source: int, *, sync: bool = False) -> int:
    """Read an archive from `source` into the folder `path`; return how many members it had.

    `temporary` is an unused name in that folder; when this returns or raises, nothing is left there. With `sync` every
    file is on the disk before it replaces another.
    """
    target = workspace.make_folders(path)
    try:
        count = _unpack(target, kind, temporary, source, sync=sync)
        if sync:
            # The removal of the hidden folder was the last change: with it all before are written.
            sync_folder(target)
        return count
    finally:
        os.close(target)


def _unpack(target: int, kind: str, temporary: str, source: int, *, sync: bool) -> int:
    with open(source, "rb", BLOCK, closefd=False) as stream, contextlib.ExitStack() as stack:
        file = stack.enter_context(_spooled(stream, target, temporary)) if kind == "zip" else stream
        os.mkdir(temporary, 0o700, dir_fd=target)
        stack.callback(delete_tree, target, temporary)
        staging = _Staging(open_at(target, temporary, PLACE), sync=sync)
        try:
            count = _read_zip(file, staging) if kind == "zip" else _read_tar(file, kind, staging)
        except (Refused, OSError):
            raise
        except Exception as error:  # tarfile and zipfile raise a dozen kinds for a bad archive
            raise invalid(f"this is not a whole {kind} archive: {error}") from error
        while stream.read(BLOCK):
            """Discard padding after the end of an archive."""
        _merge(staging.workspace, Workspace(target, "/"), move=False)
        _merge(staging.workspace, Workspace(target, "/"), move=True)
        return count


@contextlib.contextmanager
def _spooled(stream: IO[bytes], target: int, name: str) -> Iterator[IO[bytes]]:
    """Keep a zip in a nameless file on the workspace's disk: its list of members is at its end."""
    fd = open_at(target, name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.unlink(name, dir_fd=target)
    with open(fd, "w+b") as file:
        shutil.copyfileobj(stream, file, BLOCK)
        file.seek(0)
        yield file


def _read_tar(stream: IO[bytes], kind: str, staging: _Staging) -> int:
    count = 0
    with tarfile.open(fileobj=stream, mode="r|gz" if kind == "tar.gz" else "r|", bufsize=BLOCK) as tar:
        while (member := tar.next()) is not None:
            # tarfile keeps every member it has read; of a large archive that is more memory than a worker has.
            tar.members.clear()  # type: ignore[attr-defined]
            with staging.member(member.name) as name:
                if member.isdir():
                    staging.add_folder(name)
                elif member.issym():
                    staging.add_link(name, member.linkname)
                elif member.islnk():
                    staging.add_hard_link(name, member.linkname)
                elif member.isreg() and (content := tar.extractfile(member)) is not None:
                    staging.add_file(name, member.mode, member.mtime, content)
                else:
                    raise invalid("is a device or a special file, which are not unpacked")
            count += 1
    return count


def _read_zip(file: IO[bytes], staging: _Staging) -> int:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        for member in members:
            mode = member.external_attr >> 16
            with staging.member(member.filename) as name:
                if member.is_dir():
                    staging.add_folder(name)
                elif stat.S_ISLNK(mode):
                    if member.file_size >= MAX_PATH:
                        raise invalid("is a link with too long a target")
                    staging.add_link(name, os.fsdecode(archive.read(member)))
                elif stat.S_IFMT(mode) in {0, stat.S_IFREG}:
                    with archive.open(member) as content:
                        staging.add_file(name, mode & 0o777 or 0o644, None, content)
                else:
                    raise invalid("is a device or a special file, which are not unpacked")
    return len(members)


class _Staging:
    """The hidden folder in which members are made."""

    def __init__(self, place: int, *, sync: bool) -> None:
        self.workspace = Workspace(place, "/")
        self._sync = sync
        self._place = place
        self._count = 0

    @contextlib.contextmanager
    def member(self, name: str) -> Iterator[str]:
        """Check a member's name, yield it reduced, and name the member in every error about it."""
        self._count += 1
        if self._count > MAX_MEMBERS:
            raise Refused("too_large", f"the archive has more than {MAX_MEMBERS} members")
        try:
            yield _check_name(name)
        except Refused as error:
            raise Refused(error.code, f"archive member {printable(name)!r} {error}") from error
        except OSError as error:
            if error.errno is None:
                raise invalid(f"archive member {printable(name)!r} is damaged: {error}") from error
            raise Refused(refusal(error, name).code, f"archive member {refusal(error, name)}") from error

    def add_folder(self, name: str) -> None:
        os.close(self._folder(name))

    def add_file(self, name: str, mode: int, mtime: float | None, content: IO[bytes]) -> None:
        with self._slot(name) as (place, last):
            fd = open_at(place, last, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with open(fd, "wb", 0) as file:
                shutil.copyfileobj(content, file, BLOCK)
                os.fchmod(fd, mode & 0o777)
                if mtime is not None:
                    with contextlib.suppress(OverflowError, ValueError, OSError):
                        os.utime(fd, (mtime, mtime))
                if self._sync:
                    sync_file(fd)

    def add_link(self, name: str, target: str) -> None:
        _check_target(name, target)
        with self._slot(name) as (place, last):
            os.symlink(target, last, dir_fd=place)

    def add_hard_link(self, name: str, linked: str) -> None:
        head, _, tail = _check_name(linked, "is a hard link whose target").rpartition("/")
        try:
            source = self.workspace.open(head or ".", PLACE, links=False)
        except OSError as error:
            raise invalid("is a hard link to a name that is not in the archive") from error
        try:
            if not stat.S_ISREG(os.stat(tail, dir_fd=source, follow_symlinks=False).st_mode):
                raise invalid("is a hard link to something other than a file")
            if name != _check_name(linked):
                with self._slot(name) as (place, last):
                    os.link(tail, last, src_dir_fd=source, dst_dir_fd=place, follow_symlinks=False)
        except FileNotFoundError as error:
            raise invalid("is a hard link to a name that is not in the archive") from error
        finally:
            os.close(source)

    @contextlib.contextmanager
    def _slot(self, name: str) -> Iterator[tuple[int, str]]:
        """Open the folder of a member that is not a folder, with its name free: a later member wins."""
        head, _, last = name.rpartition("/")
        if not last or name == ".":
            raise invalid("has no name")
        place = self._folder(head or ".")
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(last, dir_fd=place)
            yield place, last
        finally:
            os.close(place)

    def _folder(self, path: str) -> int:
        """Open a folder of the staging area, made if missing; a link in its path is an error."""
        try:
            return self.workspace.open(path, PLACE, links=False)
        except FileNotFoundError:
            head, _, last = path.rpartition("/")
        parents = [last]
        while head:
            try:
                place = self.workspace.open(head, PLACE, links=False)
                break
            except FileNotFoundError:
                head, _, last = head.rpartition("/")
                parents.append(last)
        else:
            place = self.workspace.open(".", PLACE)
        for part in reversed(parents):
            try:
                os.mkdir(part, 0o755, dir_fd=place)
                below = open_at(place, part, PLACE)
            finally:
                os.close(place)
            place = below
        return place


def _merge(staging: Workspace, target: Workspace, *, move: bool) -> None:
    """Move everything to its target, folders into folders; without `move` only check that this is possible."""
    folders = ["."]
    while folders:
        path = folders.pop()
        source, place = staging.open(path, PLACE, links=False), target.open(path, PLACE, links=False)
        listing = open_at(source, ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in os.listdir(listing):
                inner = name if path == "." else f"{path}/{name}"
                is_folder = stat.S_ISDIR(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode)
                there = _kind_of(place, name)
                if is_folder and there == stat.S_IFDIR:
                    folders.append(inner)
                elif there and is_folder != (there == stat.S_IFDIR):
                    what = "a folder" if is_folder else "a file"
                    raise Refused(
                        "conflict", f"archive member {printable(inner)!r} is {what}, and the existing one is not"
                    )
                elif move:
                    rename(source, name, place, name, replace=True)
        finally:
            for fd in (source, place, listing):
                os.close(fd)


def _kind_of(place: int, name: str) -> int:
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return 0


def _check_name(name: str, what: str = "has a name that") -> str:
    """Reduce a member's name to one that stays inside its folder."""
    try:
        size = len(os.fsencode(name))
    except UnicodeEncodeError:
        raise invalid(f"{what} is not Unicode") from None
    if not name or "\0" in name or size >= MAX_PATH:
        raise invalid(f"{what} is empty, too long or holds a NUL character")
    if name.startswith("/"):
        raise invalid(f"{what} is absolute")
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise invalid(f"{what} climbs with '..'")
    return "/".join(parts) or "."


def _check_target(name: str, target: str) -> None:
    if not target or "\0" in target or target.startswith("/"):
        raise invalid(f"is a link to {printable(target)!r}, which is empty or absolute")
    parts = [part for part in target.split("/") if part not in {"", "."}]
    climbs = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    if climbs > name.count("/") or ".." in parts[climbs:]:
        raise invalid(f"is a link to {printable(target)!r}, which climbs out")
