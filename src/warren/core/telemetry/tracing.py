"""Tracing interface of the core. Without the extra `otel` it does nothing, at no cost.

Attributes are ids, constants and numbers. Never code, output, paths, queries, headers, exception messages, or other
input of a caller.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from warren.core.agent.client import AgentClient
    from warren.domain.values import ExecRequest, ExecResult

Value = str | int | float | bool

TRACEPARENT = "TRACEPARENT"
"""The environment variable by which programs inside join the trace."""


class Span:
    """A span, for the length of a `with`. This one records nothing."""

    trace_id = ""

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        """Add attributes; None values are left out."""

    def fail(self, kind: str) -> None:
        """Mark the span as failed, with the kind of failure."""

    def rename(self, name: str) -> None:
        """Rename the span."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the span; of an exception, the class is recorded."""


_NOWHERE = Span()


class Tracer:
    """Creates spans, each a child of the current one. This one records nothing."""

    is_on = False

    def span(self, _name: str, _attributes: Mapping[str, Value] | None = None) -> Span:
        """Create a span that starts when it is entered."""
        return _NOWHERE

    def request(self, _headers: Iterable[tuple[bytes, bytes]]) -> Span:
        """Create the span of a request, as a child of its `traceparent`."""
        return _NOWHERE

    def past(self, _name: str, _seconds: float, _attributes: Mapping[str, Value | None] | None = None) -> None:
        """Record a span of that duration that ends now."""

    def traceparent(self) -> str | None:
        """Return the current span as a traceparent."""
        return None

    async def close(self) -> None:
        """Flush the spans; bounded by a timeout."""


async def run_traced(tracer: Tracer, agent: AgentClient, request: ExecRequest, **options: Any) -> ExecResult:
    """Run a request on an agent, with spans for the call and for the duration that the agent measured."""
    if not tracer.is_on:
        return await agent.run(request, **options)
    with tracer.span("link.run"):
        parent = tracer.traceparent()
        if parent is not None and TRACEPARENT not in request.env:
            request = dataclasses.replace(request, env={**request.env, TRACEPARENT: parent})
        result = await agent.run(request, **options)
        tracer.past("kernel", result.duration_ms / 1000, {"warren.kind": request.kind.value, **describe(result)})
    return result


def describe(result: ExecResult) -> dict[str, Value | None]:
    """Return the attributes of a result."""
    return {
        "warren.cause": result.cause.value,
        "warren.state": result.state.value,
        "warren.exit_code": result.exit_code,
        "warren.cpu_ms": result.cpu_ms,
    }
