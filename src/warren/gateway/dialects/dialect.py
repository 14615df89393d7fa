"""What makes a dialect: its operations, how it reads a request, and how it says what went wrong.

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
