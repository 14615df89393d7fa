"""The settings of the way out: what sandboxes may reach, and how much may pass."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from warren.domain import GIB
from warren.settings.kinds import Group, Size


class EgressSettings(Group):
    """What leaves sandboxes, and what comes back to them."""

    default: Literal["none", "packages", "open"] = Field(
        default="none",
        description="What a sandbox may reach when its caller does not say: `none`, `packages` or `open`.",
    )
    connections: int = Field(
        default=64, ge=1, le=256, description="Connections of one sandbox to the outside at once; further ones wait."
    )
    everybody: int = Field(default=1024, ge=1, description="Connections of all sandboxes to the outside at once.")
    per_minute: int = Field(
        default=1200, ge=0, description="New connections of one sandbox in a minute; 0 is no limit."
    )
    bytes_per_hour: Size = Field(
        default=100 * GIB, ge=0, description="Bytes of one sandbox in an hour, both ways; 0 is no limit."
    )
    idle_s: float = Field(
        default=600, ge=1, le=86_400, description="Seconds without a byte after which a connection is closed."
    )
    answer_s: float = Field(
        default=300, ge=1, le=86_400, description="Seconds that a server outside may take to begin an answer."
    )
    ca_file: str = Field(
        default="",
        description="Certificates, in PEM, that are believed where the service speaks TLS for a sandbox, besides those "
        "that this host believes.",
    )
