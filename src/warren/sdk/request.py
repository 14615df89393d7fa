"""One request, as a value that can be sent more than once."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warren.sdk.address import API

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warren.sdk.content import Content

IDEMPOTENT = {"GET", "HEAD", "PUT", "DELETE", "PATCH"}
"""PATCH too: ours sets values, it never adds to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to ask for."""

    method: str
    path: str
    """Below the service's URL."""
    params: Sequence[tuple[str, str]] = ()
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: Content | None = None
    repeatable: bool | None = None
    """Whether doing it twice is the same as once; None: as its method is."""
    read_timeout_s: float | None = -1.0
    """How long an answer may take; None is for ever, and less than 0 as the client's other requests."""

    accepts: tuple[int, ...] = ()
    """Statuses besides 2xx that are answers here, and no errors."""

    @property
    def is_repeatable(self) -> bool:
        """Whether doing it twice is the same as doing it once."""
        return self.method in IDEMPOTENT if self.repeatable is None else self.repeatable

    @property
    def can_send_again(self) -> bool:
        """Whether its body is still there once it was sent."""
        return self.content is None or self.content.can_read_again


def api(method: str, *parts: str, **rest: Any) -> Request:
    """Build a request of the native API; `params` may be a mapping, in which None is left out."""
    path = API + "".join(f"/{part}" for part in parts)
    rest["params"] = build_query(rest.get("params") or {})
    return Request(method=method, path=path, **rest)


def once(headers: Mapping[str, str] | None = None, key: str | None = None) -> dict[str, str]:
    """Build the headers of a POST that the service does once, however often it is sent."""
    return {**(headers or {}), "Idempotency-Key": key or f"sdk-{secrets.token_hex(16)}"}


def build_query(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Write a query; lists become repeated parameters, None is left out."""
    found: list[tuple[str, str]] = []
    for name, value in values.items():
        items = value if isinstance(value, list | tuple | frozenset | set) else [value]
        found.extend((name, _write(item)) for item in items if item is not None)
    return found


def _write(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
