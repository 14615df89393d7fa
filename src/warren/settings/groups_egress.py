"""Settings of egress: what sandboxes may reach, and its limits."""

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
    """Egress of sandboxes."""

    default: Literal["none", "packages", "open"] = Field(
        default="none",
        description="Egress of a sandbox unless its caller sets it: `none`, `packages` or `open`.",
    )
    connections: int = Field(
        default=64, ge=1, le=256, description="Egress connections of one sandbox at once; further ones wait."
    )
    everybody: int = Field(default=1024, ge=1, description="Egress connections of all sandboxes at once.")
    per_minute: int = Field(
        default=1200, ge=0, description="New egress connections per minute of one sandbox; 0 is no limit."
    )
    bytes_per_hour: Size = Field(
        default=100 * GIB, ge=0, description="Egress bytes per hour of one sandbox, both directions; 0 is no limit."
    )
    idle_s: float = Field(
        default=600, ge=1, le=86_400, description="Seconds without a byte after which a connection is closed."
    )
    answer_s: float = Field(
        default=300, ge=1, le=86_400, description="Timeout for the first byte of a response, in seconds."
    )
    upstream_proxy: Annotated[SecretStr, AfterValidator(_check_proxy)] | None = Field(
        default=None,
        description="Upstream proxy of all egress, by `CONNECT`: `http://user:password@proxy.example.com:3128`. It "
        "resolves names; the page on egress explains the consequences. Unless `packages.proxy` is set, packages come "
        "through it too.",
    )
    ca_file: str = Field(
        default="",
        description="Certificates in PEM that are trusted where the service speaks TLS for a sandbox, besides those "
        "this host trusts.",
    )
