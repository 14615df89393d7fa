"""Settings of slides: renders and their limits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from warren.domain.values import GIB, MIB, Limits
from warren.settings.kinds import Group, Size


class RenderSettings(Group):
    """HTML decks to PowerPoint, each in a sandbox of its own."""

    image: str = Field(default="office", description="Image with the browser.")
    version: Literal["v1", "v2"] = Field(
        default="v1", description="Default version: `v1` pictures of slides, `v2` editable slides."
    )
    warm: int = Field(default=1, ge=0, le=64, description="Sandboxes with a browser that is started ahead.")
    warm_s: float = Field(
        default=600, ge=0, le=86_400, description="Seconds after the last render that these stay ready."
    )
    at_once: int = Field(default=2, ge=1, le=256, description="Decks rendered at the same time.")
    wait_s: float = Field(
        default=0.5, ge=0, le=600, description="Seconds that a request waits for a slot before it is rejected."
    )
    per_minute: int = Field(default=10, ge=0, description="Decks per minute of one principal; 0 is no limit.")
    timeout_s: float = Field(default=180, gt=0, le=3600, description="Timeout of a deck, in seconds.")
    memory_bytes: Size = Field(default=1536 * MIB, ge=256 * MIB, description="Memory of one render.")
    cpus: float = Field(default=2.0, ge=0.05, le=1024, description="Processors of one render.")
    pids: int = Field(default=512, ge=64, le=32_768, description="Processes and threads of one render.")
    disk_bytes: Size = Field(default=GIB, ge=64 * MIB, description="Disk of one render.")
    body_bytes: Size = Field(default=180_000_000, ge=1024, description="Largest body of a request.")
    html_chars: int = Field(default=2_000_000, ge=1, description="Characters of a page.")
    files: int = Field(default=32, ge=0, le=1000, description="Files of a page.")
    file_bytes: Size = Field(default=25_000_000, ge=1, description="Largest of them.")
    files_bytes: Size = Field(default=120_000_000, ge=1, description="All of them together.")
    slides: int = Field(default=200, ge=1, le=2000, description="Slides of a deck.")
    output_bytes: Size = Field(default=220_000_000, ge=1, description="Largest archive in a response.")
    waiting: int = Field(default=100, ge=1, description="Unfinished background renders of all principals.")
    own_waiting: int = Field(default=10, ge=1, description="The same, of one principal.")
    keep_s: float = Field(
        default=3600, gt=0, le=366 * 86_400, description="Seconds that the result of a background render is kept."
    )

    def build_limits(self) -> Limits:
        """Build the limits of its sandboxes. Raises InvalidRequest for values out of range."""
        return Limits(
            memory_bytes=self.memory_bytes,
            cpus=self.cpus,
            pids=self.pids,
            disk_bytes=self.disk_bytes,
            checkpoints=0,
        )
