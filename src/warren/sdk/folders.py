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
            archive.add(os.path.join(folder, name), arcname=name, filter=_anonymous)
    packed.seek(0)
    return packed


def unpack(packed: IO[bytes], to: str | os.PathLike[str]) -> int:
    """Unpack what came from a sandbox, which may have written anything into it. Raises OSError, tarfile.TarError."""
    packed.seek(0)
    os.makedirs(to, exist_ok=True)
    count = 0
    with tarfile.open(fileobj=packed) as archive:
        for member in archive:
            # SAFE BECAUSE: this filter refuses what leads out of the folder, devices, and bits such as setuid.
            archive.extract(member, to, set_attrs=True, filter="data")
            count += 1
    return count


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


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out whose it is here, and what a sandbox cannot have."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member if member.isfile() or member.isdir() or member.issym() or member.islnk() else None
