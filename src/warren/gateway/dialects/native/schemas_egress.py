"""Native API, schemas: egress, grants and brokered secrets."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from warren.core.egress.control import MAX_GRANT_S, MAX_SECRET_HOSTS, MAX_VALUE
from warren.core.policy.egress_rules import MAX_PORTS, MAX_RULES, METHODS
from warren.gateway.api.bodies import matching
from warren.gateway.dialects.native.answers import Shown, Time
from warren.gateway.dialects.native.schemas import Body, EnvName, Port

_LABEL = r"[A-Za-z0-9_*](?:[A-Za-z0-9_*-]{0,61}[A-Za-z0-9_*])?"
_NAME_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_LAST = r"[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_V4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"
_H = r"[0-9A-Fa-f]{1,4}"
_V6 = "|".join(
    (
        rf"(?:{_H}:){{7}}{_H}",
        rf"(?:{_H}:){{1,7}}:",
        *(rf"(?:{_H}:){{1,{7 - more}}}(?::{_H}){{1,{more}}}" for more in range(1, 7)),
        rf":(?::{_H}){{1,7}}",
        "::",
    )
)
_V4_LENGTH = r"(?:/(?:3[0-2]|[12]?[0-9]))?"
_V6_LENGTH = r"(?:/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))?"

_HOST_NAME = rf"^(?:{_NAME_LABEL}\.)*{_LAST}$"
_HOST_PATTERN = rf"^(?:\*|(?:{_LABEL}\.)*{_LAST}|{_V4}{_V4_LENGTH}|(?:{_V6}){_V6_LENGTH})$"
"""A name, a glob of names, an address or a network, in one regular expression: the OpenAPI document has it."""

Target = Annotated[
    str,
    matching(
        _HOST_PATTERN,
        "be the name of a host (other letters as xn--…), a glob such as *.example.org, an address or a network",
        max_length=253,
    ),
]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
HostName = Annotated[
    str,
    matching(
        _HOST_NAME, "be the exact name of a host, such as api.example.org: no glob and no address", max_length=253
    ),
]
SecretValue = Annotated[
    str,
    matching(
        r"^[\x21-\x7e][\x20-\x7e]{6,}[\x21-\x7e]$",
        "be at least 8 characters of printable ASCII in one line, with no spaces around it",
        max_length=MAX_VALUE,
    ),
]


class EgressRuleBody(Body):
    """Something that a sandbox may reach."""

    host: Target = Field(
        description="A name, a glob of names, an address or a network. `*.example.org` is every name below it, and not "
        "`example.org`. What is not public has to be named exactly, or by its address or network."
    )
    ports: Annotated[list[Port], Field(min_length=1, max_length=MAX_PORTS)] = Field(
        default_factory=lambda: [80, 443], description="On these ports."
    )
    methods: Annotated[list[Method], Field(max_length=len(METHODS))] = Field(
        default_factory=list,
        description="With these methods, of plain HTTP only: a rule that has some allows no TLS. Empty is all.",
    )


class EgressBody(Body):
    """What a sandbox may reach."""

    # Mode `none` and rules contradict each other.
    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"properties": {"mode": {"enum": ["packages", "rules", "open"]}}},
                {"properties": {"rules": {"maxItems": 0}}},
            ]
        }
    )

    mode: Literal["none", "packages", "rules", "open"] = Field(
        default="rules",
        description="`none`: nothing. `packages`: the package indexes. `rules`: what a rule names. `open`: all that is "
        "public. Rules add to what `packages` and `open` allow.",
    )
    rules: Annotated[list[EgressRuleBody], Field(max_length=MAX_RULES)] = Field(
        default_factory=list, description="What may be reached besides."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.rules and self.mode == "none":
            raise ValueError("with rules the mode is rules, packages or open, and not none")
        return self


def _from_word(value: object) -> object:
    """Take a word for an object that has nothing else."""
    if not isinstance(value, str):
        return value
    if value not in {"none", "packages", "open"}:
        raise ValueError("write none, packages or open, or an object with rules")
    return {"mode": value}


EgressField = Annotated[
    EgressBody,
    BeforeValidator(_from_word, json_schema_input_type=Literal["none", "packages", "open"] | EgressBody),
]
"""A word, or a word and rules."""
EGRESS_ABOUT = "What it may reach: `none`, `packages`, `open`, or an object with rules."


class CreateGrant(EgressRuleBody):
    """Something that a sandbox may reach for a while."""

    expires_in_seconds: Annotated[float, Field(ge=1, le=MAX_GRANT_S)] = Field(
        default=3600, description="How long it is good for; then it is gone, and connections by it are cut."
    )


class GrantShown(Shown):
    """Something that a sandbox may reach until its time is over."""

    id: str = Field(pattern=r"^grt_[a-z0-9]{8,40}$")
    host: str
    ports: list[int]
    methods: list[str]
    created_at: Time
    expires_at: Time


class GrantsShown(Shown):
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


class SecretShown(Shown):
    """A secret of a sandbox, without its value."""

    name: str
    placeholder: str = Field(description="What the sandbox has in its place: write it wherever the value would go.")
    hosts: list[str]
    created_at: Time


class SecretsShown(Shown):
    """The secrets of a sandbox."""

    items: list[SecretShown]
