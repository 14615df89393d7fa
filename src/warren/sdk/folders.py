"""Files and folders of this machine, on their way to a sandbox and back."""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_IN_MEMORY = 8 << 20


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine, and what becomes of it in the sandbox."""

    path: Path
    target: str
    mode: str


def find_file(local: str | os.PathLike[str], to: str | None, mode: str | None) -> LocalFile:
    """Look at a file that shall be uploaded. Raises OSError."""
    path = Path(local)
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(21, "this is a folder: use upload_folder", str(path))
    return LocalFile(path, to or path.name, mode or f"{stat.S_IMODE(found.st_mode) & 0o777:03o}")


def spool() -> IO[bytes]:
    """Open a nameless file for an archive: in memory while it is small."""
    return tempfile.SpooledTemporaryFile(_IN_MEMORY)


def pack(folder: str | os.PathLike[str]) -> IO[bytes]:
    """Pack what is in a folder. Raises OSError."""
    if not os.path.isdir(folder):
        raise NotADirectoryError(20, "this is no folder: use upload", os.fspath(folder))
    packed = spool()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(os.listdir(folder)):
            archive.add(os.path.join(folder, name), arcname=name, filter=anonymous)
    packed.seek(0)
    return packed


def unpack(packed: IO[bytes], to: str | os.PathLike[str]) -> int:
    """Unpack what came from a sandbox, which may have written anything into it. Raises OSError."""
    packed.seek(0)
    os.makedirs(to, exist_ok=True)
    count = 0
    try:
        with tarfile.open(fileobj=packed) as archive:
            for member in archive:
                _clear_way(member, os.fspath(to))
                # SAFE BECAUSE: this filter refuses what leads out of the folder, devices, and bits such as setuid.
                archive.extract(member, to, set_attrs=True, filter="data")
                count += 1
    except tarfile.TarError as error:
        raise OSError(f"the archive of the folder is not unpacked any further: {error}") from error
    return count


def _clear_way(member: tarfile.TarInfo, to: str) -> None:
    """Refuse a member that is written through a link, or is a link out of the folder, whatever links lead where.

    WHY besides the filter: in Python before 3.11.13 it resolves paths, and trusts the result when the path is too long
    to resolve (CVE-2025-4517). This looks at names only.
    """
    above = _walk(member.name, to, whole=member.isdir())
    if member.islnk():
        _walk(member.linkname, to, whole=True)
    if member.issym() and _may_lead_out(member.linkname, above):
        raise PermissionError(1, "this link leads out of the folder, or may", member.name)
    own = os.path.join(to, member.name.lstrip("/"))
    if not member.isdir() and os.path.islink(own):
        os.unlink(own)


def _walk(name: str, to: str, *, whole: bool) -> int:
    """Follow a name down from the folder, its last part too if `whole`; return how many folders are above that."""
    parts, way = _split(name), to
    for part in parts if whole else parts[:-1]:
        way = os.path.join(way, part)
        # SAFE BECAUSE: for a way that is too long to look at it is False, and that is too long to write to, too.
        if os.path.islink(way):
            raise PermissionError(1, "this would be written through a link", name)
    if ".." in parts:
        raise PermissionError(1, "this leads out of the folder, or may", name)
    return max(len(parts) - 1, 0)


def _may_lead_out(target: str, above: int) -> bool:
    """Whether a link goes up further than the folders above it, or up again after it went down: by another link."""
    parts = _split(target)
    up = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    return target.startswith("/") or up > above or ".." in parts[up:]


def _split(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in {"", "."}]


@contextlib.contextmanager
def saving(to: str | os.PathLike[str] | IO[bytes]) -> Iterator[IO[bytes]]:
    """Give a file to write to; one of a path appears there once all of it is written, and not before."""
    if not isinstance(to, str | os.PathLike):
        yield to
        return
    target = os.path.abspath(to)
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(target), prefix=".warren-", delete=False) as file:
        try:
            yield file.file
            file.flush()
            os.chmod(file.name, _mode_of(target))
            os.replace(file.name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(file.name)
            raise


def _mode_of(target: str) -> int:
    with contextlib.suppress(OSError):
        return stat.S_IMODE(os.stat(target).st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out whose it is here, and what a sandbox cannot have."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member if member.isfile() or member.isdir() or member.issym() or member.islnk() else None
