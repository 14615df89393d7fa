"""The operator's policy for slides, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from warren.domain.values import GIB, MIB, Limits

PICTURES, EDITABLE = "v1", "v2"
"""The two renderers: `v1` makes one exact picture per slide, `v2` text, shapes, tables and pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderPolicy:
    """Limits and defaults of renders."""

    image: str = "office"
    limits: Limits = field(
        default_factory=lambda: Limits(memory_bytes=1536 * MIB, cpus=2.0, pids=512, disk_bytes=GIB, checkpoints=0)
    )
    version: str = PICTURES
    """Unless a request names one."""
    warm: int = 1
    """Sandboxes with a browser that is started ahead."""
    warm_s: float = 600.0
    """Seconds that these stay ready after the last render."""
    at_once: int = 2
    wait_s: float = 0.5
    """For a slot among `at_once`."""
    per_minute: int = 10
    """Renders of one principal; 0 is no limit."""
    timeout_s: float = 180.0
    html_chars: int = 2_000_000
    files: int = 32
    file_bytes: int = 25_000_000
    files_bytes: int = 120_000_000
    slides: int = 200
    output_bytes: int = 220_000_000
    waiting: int = 100
    """Background renders in progress, of all principals."""
    own_waiting: int = 10
    keep_s: float = 3600.0
    """Seconds that the result of a background render is kept."""
