"""A dialect: its operations, its parsers, and its shape of errors.

A dialect is a folder over the same use cases: `routes…` (parse, one use case, render), `schemas…` (the foreign words)
and `translate…` (pure). Where its programs behave differently it passes a value to the use case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel
    from starlette.responses import Response

    from warren.gateway.api.operations import Operation
    from warren.gateway.ops.metrics import Report


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
