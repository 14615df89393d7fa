"""Files that the service keeps for somebody, apart from any sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.domain.records.principals import Owner

STORED_FILE_BYTES = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file that the service keeps for somebody, apart from any sandbox, until its time is over."""

    id: str
    owner: Owner
    name: str
    """As its owner calls it; never a path of ours."""
    size: int
    sha256: str
    blob: str
    """The name of its content among the blobs."""
    created_at: float
    expires_at: float

    @property
    def weight(self) -> int:
        """What it counts for in a quota: an empty one is a row and a file too."""
        return self.size + STORED_FILE_BYTES
