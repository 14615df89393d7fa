"""Archives of files that go into a sandbox together."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def pack_files(files: Mapping[str, bytes]) -> bytes:
    """Pack contents by their paths, as a tar that the agent unpacks."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()
