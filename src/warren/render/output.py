"""The ZIP of a render: pictures as they are taken, then the PowerPoint file, all uncompressed."""

from __future__ import annotations

import time
import zipfile

from warren.render.failure import RenderFailed


class Output:
    """A ZIP on disk, bounded in size. Used by one thread at a time."""

    def __init__(self, path: str, max_bytes: int) -> None:
        self._archive = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED)
        self._max_bytes = max_bytes
        self._now = time.gmtime()[:6]
        self.size = 0

    def add(self, name: str, content: bytes) -> None:
        """Add a file. Raises RenderFailed above the size limit."""
        self.size += len(content)
        if self.size > self._max_bytes:
            raise RenderFailed(
                "output_too_large", f"render output exceeds max size of {self._max_bytes} bytes while adding {name}"
            )
        member = zipfile.ZipInfo(name, self._now)
        member.external_attr = 0o644 << 16
        self._archive.writestr(member, content)

    def close(self) -> None:
        """Write the central directory, without which the ZIP is not valid."""
        self._archive.close()
