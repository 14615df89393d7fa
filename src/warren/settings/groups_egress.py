"""The settings of the way out: what sandboxes may reach, and how much may pass."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from warren.domain.values import GIB
from warren.settings.kinds import Group, Size


def _check_proxy(value: SecretStr) -> SecretStr:
    try:
        parts = urlsplit(value.get_secret_value())
        is_one = parts.scheme == "http" and bool(parts.hostname) and (parts.port or 1) > 0
        is_one = is_one and parts.path in {"", "/"} and not parts.query and not parts.fragment
    except ValueError:
        is_one = False
    if not is_one:
        raise ValueError("write http://host:port, with user:password@ before the host if it asks for them")
    return value


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
    upstream_proxy: Annotated[SecretStr, AfterValidator(_check_proxy)] | None = Field(
        default=None,
        description="Proxy of yours that all connections of sandboxes go through, by `CONNECT`, where there is no "
        "other way out: `http://user:password@proxy.example.com:3128`. It looks names up; see the page on egress for "
        "what that means. Unless `packages.proxy` is set, packages come through it too.",
    )
    ca_file: str = Field(
        default="",
        description="Certificates, in PEM, that are believed where the service speaks TLS for a sandbox, besides those "
        "that this host believes.",
    )
