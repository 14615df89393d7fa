"""A dialect: its operations, its parsers, and its shape of errors.

A dialect is a folder over the same use cases: `routes…` (parse, one use case, render), `schemas…` (the foreign words)
and `translate…` (pure). Where its programs behave differently it passes a value to the use case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric
    from pydantic import BaseModel
    from starlette.responses import Response

    from warren.core.service import Service
    from warren.gateway.api.operations import Operation
    from warren.gateway.ops.metrics import Metrics, Report
    from warren.settings import Settings


class HealthReport:
    """A report that adds to `/health` alone."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self.service = service
        self.settings = settings

    def details(self, reasons: list[str]) -> Mapping[str, Any]:  # noqa: ARG002 - the seam's
        """Return nothing more."""
        return {}

    def collect(self, metrics: Metrics) -> Iterator[Metric]:  # noqa: ARG002 - the seam's
        """Yield no numbers."""
        return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One API flavour, as a value."""

    name: str
    """In the settings, in the audit record and in `/docs/api/<name>`."""
    title: str
    about: str
    """The introduction of its API page."""
    operations: tuple[Operation, ...]
    """Their paths begin at the root."""
    parse_body: Callable[[type[BaseModel], bytes], BaseModel]
    """Reads JSON, and raises exceptions that `respond` knows."""
    parse_query: Callable[[type[BaseModel], bytes], BaseModel]
    respond: Callable[[BaseException, str], Response]
    """Builds the answer to a request that ended in an exception; the request's id is the second argument."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Headers of every answer."""
    refused_early: tuple[type[BaseException], ...] = ()
    """Exceptions whose answers lack these headers: the original refuses before it sets them."""
    new_request_id: Callable[[], str] | None = None
    """Makes the id of a request that has none, where clients expect another format than ours."""
    shared_paths: frozenset[str] = frozenset()
    """Addresses of the service itself that its clients use too: their answers have these headers as well."""
    own_paths: frozenset[str] = frozenset()
    """Those of them that only its clients use: their errors have its shape."""
    report: type[Report] | None = None
