"""What makes a dialect: its operations, how it reads a request, and how it says what went wrong.

A dialect is a folder over the same use cases: `routes…` (parse, one use case, render), `schemas…` (the foreign words)
and `translate…` (pure). Where its programs behave differently it passes a value to the use case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric
    from pydantic import BaseModel
    from starlette.responses import Response

    from warren.core.service import Service
    from warren.gateway.api.operations import Operation
    from warren.gateway.ops.metrics import Metrics
    from warren.settings import Settings


class Report(Protocol):
    """What a dialect adds to what the service says of itself, because its clients look for it there."""

    def __init__(self, service: Service, settings: Settings) -> None: ...

    def health(self) -> Mapping[str, Any]:
        """Return what `/health` says besides."""

    def details(self, reasons: list[str]) -> Mapping[str, Any]:
        """Return what `/healthz/details` says besides; `reasons` are why the service cannot work."""

    def collect(self, metrics: Metrics) -> Iterator[Metric]:
        """Yield numbers for `/metrics`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One API flavour, as a value."""

    name: str
    """In the settings, in the audit record and in `/docs/<name>`."""
    title: str
    about: str
    """What its page says first."""
    operations: tuple[Operation, ...]
    """Their paths begin at the root."""
    parse_body: Callable[[type[BaseModel], bytes], BaseModel]
    """Reads JSON, and raises what `respond` can say."""
    parse_query: Callable[[type[BaseModel], bytes], BaseModel]
    respond: Callable[[BaseException, str], Response]
    """Builds the answer to a request that ended in an exception; the request's id is the second argument."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """What every answer has."""
    refused_early: tuple[type[BaseException], ...] = ()
    """What is refused without them, as the original does before it has begun."""
    new_request_id: Callable[[], str] | None = None
    """Makes the id of a request that came without one, where clients know another kind than ours."""
    shared_paths: frozenset[str] = frozenset()
    """Addresses of the service itself that its clients use too: their answers have these headers as well."""
    own_paths: frozenset[str] = frozenset()
    """Those of them that no other clients know: what goes wrong there is said in its words."""
    report: type[Report] | None = None
