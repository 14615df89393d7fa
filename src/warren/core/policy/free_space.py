"""Free space of the data disk. Below its watermark nothing is begun that writes more; deletes still work.

WHY: workspaces are sparse files, so together they may be larger than the disk. When it is full, writes that programs
have made already cannot be written out any more, those of all tenants alike.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from warren.domain.errors import InsufficientStorage
from warren.domain.values import GIB, MIB

CHECKED_S = 1.0
"""The disk is asked at most once in this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """What has to stay free: bytes and inodes, 0 being nothing."""

    free_bytes: int = 0
    free_inodes: int = 0

    @classmethod
    def of_disk(cls, folder: str) -> Watermark:
        """Return the usual watermark of the disk of a folder."""
        at = os.statvfs(folder)
        return cls(
            free_bytes=min(at.f_blocks * at.f_frsize // 20, GIB),
            # Some file systems make inodes as needed, and count none.
            free_inodes=min(at.f_files // 100, 10_000),
        )


class FreeSpace:
    """The free space of one folder's disk, against a watermark."""

    def __init__(self, folder: str = "", watermark: Watermark | None = None, *, checked_s: float = CHECKED_S) -> None:
        """Without a watermark there is always space."""
        self._folder = folder
        self._watermark = watermark or Watermark()
        self._checked_s = checked_s
        self._checked_at = -1.0
        self._shortage: str | None = None

    def find_shortage(self) -> str | None:
        """Return a sentence that says what is short and what to do, or None."""
        now = time.monotonic()
        if self._checked_at < 0 or now - self._checked_at >= self._checked_s:
            self._shortage, self._checked_at = self._measure(), now
        return self._shortage

    def check(self) -> None:
        """Raise InsufficientStorage below the watermark."""
        shortage = self.find_shortage()
        if shortage is not None:
            raise InsufficientStorage(shortage)

    def _measure(self) -> str | None:
        wanted = self._watermark
        if not (wanted.free_bytes or wanted.free_inodes):
            return None
        try:
            at = os.statvfs(self._folder)
        except OSError:
            # The store and the engine report a disk that is gone.
            return None
        free = at.f_bavail * at.f_frsize
        if free < wanted.free_bytes:
            return _explain(f"{free // MIB} MiB of {wanted.free_bytes // MIB} MiB")
        if at.f_files and at.f_favail < wanted.free_inodes:
            return _explain(f"{at.f_favail} of {wanted.free_inodes} inodes")
        return None


def _explain(what: str) -> str:
    return (
        f"the service's disk is full but for a reserve, {what}: delete sandboxes or files, or have its operator make "
        "room; until then nothing is created, started or uploaded"
    )
