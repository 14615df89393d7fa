"""What the native API takes and answers about the way out: grants and brokered secrets."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from warren.core.egress import MAX_GRANT_S, MAX_SECRET_HOSTS, MAX_VALUE
from warren.gateway.dialects.native.schemas import Body, EgressRuleBody, EnvName
from warren.gateway.host_pattern import NAME
from warren.gateway.patterns import matching

HostName = Annotated[
    str, matching(NAME, "be the exact name of a host, such as api.example.org: no glob and no address", max_length=253)
]
SecretValue = Annotated[
    str,
    matching(
        r"^[\x21-\x7e][\x20-\x7e]{6,}[\x21-\x7e]$",
        "be at least 8 characters of printable ASCII in one line, with no spaces around it",
        max_length=MAX_VALUE,
    ),
]


class CreateGrant(EgressRuleBody):
    """Something that a sandbox may reach for a while."""

    expires_in_seconds: Annotated[float, Field(ge=1, le=MAX_GRANT_S)] = Field(
        default=3600, description="How long it is good for; then it is gone, and connections by it are cut."
    )


class GrantShown(Body):
    """Something that a sandbox may reach until its time is over."""

    id: str = Field(pattern=r"^grt_[a-z0-9]{8,40}$")
    host: str
    ports: list[int]
    methods: list[str]
    created_at: str
    expires_at: str


class GrantsShown(Body):
    """What a sandbox was granted and still has, oldest first."""

    items: list[GrantShown]


class CreateSecret(Body):
    """A secret that a sandbox may use and never has."""

    name: EnvName = Field(description="Also of the variable inside that holds the placeholder.")
    value: SecretValue = Field(description="Kept by the service, and never shown again.")
    hosts: Annotated[list[HostName], Field(min_length=1, max_length=MAX_SECRET_HOSTS)] = Field(
        description="The only hosts that the value is sent to, by their exact names. The sandbox's egress has to "
        "allow them besides."
    )


class SecretShown(Body):
    """A secret of a sandbox, without its value."""

    name: str
    placeholder: str = Field(description="What the sandbox has in its place: write it wherever the value would go.")
    hosts: list[str]
    created_at: str


class SecretsShown(Body):
    """The secrets of a sandbox."""

    items: list[SecretShown]
