"""Types of settings, as people write their values."""

from __future__ import annotations

import math
import re
from ipaddress import ip_network
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainValidator

from warren.domain.errors import InvalidRequest
from warren.domain.gpus import NOTHING, GpuRequest
from warren.domain.values import GIB, KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable

AUTO: Literal["auto"] = "auto"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", re.IGNORECASE)
_ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?")
_HOSTS = re.compile(r"https?://\*\.[a-z0-9-]+(\.[a-z0-9-]+)*(:\d{1,5})?")
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB}


def parse_size(text: str) -> int:
    """Parse `512M` or `2GiB` as bytes; K, M and G are powers of 1024. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("write a number of bytes, or one with K, M or G, such as 512M")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _size(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _check_origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError("an origin is a scheme and a host, as browsers send it, such as https://app.example.com")
    return origins


def _check_hosts(url: str) -> str:
    if url and not _HOSTS.fullmatch(url):
        raise ValueError("write a scheme and a host that begins with a star, such as https://*.apps.example.com")
    return url


def _check_networks(networks: tuple[str, ...]) -> tuple[str, ...]:
    for network in networks:
        try:
            ip_network(network)
        except ValueError:
            raise ValueError("write addresses or networks, such as 127.0.0.1 or 10.0.0.0/8") from None
    return networks


def _check_gpus(text: object) -> str:
    try:
        return str(GpuRequest.parse(text) or NOTHING)
    except InvalidRequest as exc:
        raise ValueError(str(exc)) from None


def _no_limit(value: object) -> object:
    return None if value == "none" else value


def _parse_auto(parse: Callable[[str], float], what: str) -> PlainValidator:
    """Build the validator of a number that may be `auto`, which means what fits this machine."""

    def validate(value: object) -> object:
        if value == AUTO:
            return AUTO
        try:
            number: object = parse(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        is_number = isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number < math.inf
        if is_number and (what == "number" or isinstance(number, int)):
            return number
        raise ValueError(f"write auto, or a {what} of 0 or more")

    return PlainValidator(validate)


Size = Annotated[int, BeforeValidator(_size)]
AutoSize = Annotated[int | Literal["auto"], _parse_auto(parse_size, "size such as 512M")]
AutoCount = Annotated[int | Literal["auto"], _parse_auto(int, "whole number")]
AutoNumber = Annotated[float | Literal["auto"], _parse_auto(float, "number")]
Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Origins = Annotated[Names, AfterValidator(_check_origins)]
Hosts = Annotated[str, AfterValidator(_check_hosts)]
Networks = Annotated[Names, AfterValidator(_check_networks)]
Gpus = Annotated[str, BeforeValidator(_check_gpus)]
Seconds = Annotated[float | None, BeforeValidator(_no_limit)]
"""Seconds, or `none` for no limit, which neither an empty variable nor TOML can express."""


class Group(BaseModel):
    """A table of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
