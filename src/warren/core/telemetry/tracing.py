"""The seam to tracing: what the core says of how long its parts took. Without an extra it says nothing, at no cost.

Attributes are ids, words of ours and numbers. Never code, output, paths, queries, headers, messages of exceptions, or
anything else that a caller wrote.
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
"""The variable by which programs inside can join the trace, as OpenTelemetry names it."""


class Span:
    """Something that takes time, for the length of a `with`. This one is not written down."""

    trace_id = ""

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        """Say more of it; what is None is left out."""

    def fail(self, kind: str) -> None:
        """Say that it went wrong, and how, in a word."""

    def rename(self, name: str) -> None:
        """Call it something else, now that more is known."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End it; of what went wrong, the class is kept."""


_NOWHERE = Span()


class Tracer:
    """Makes spans, each within the one around it. This one makes none."""

    is_on = False

    def span(self, _name: str, _attributes: Mapping[str, Value] | None = None) -> Span:
        """Begin a span where it is entered."""
        return _NOWHERE

    def request(self, _headers: Iterable[tuple[bytes, bytes]]) -> Span:
        """Begin the span of a request, within the one that its `traceparent` names."""
        return _NOWHERE

    def past(self, _name: str, _seconds: float, _attributes: Mapping[str, Value | None] | None = None) -> None:
        """Write down a span that took so long and ended now."""

    def traceparent(self) -> str | None:
        """Name the span that we are in, for others to be within."""
        return None

    async def close(self) -> None:
        """Send what is left; waits a moment at most."""


async def run_traced(tracer: Tracer, agent: AgentClient, request: ExecRequest, **options: Any) -> ExecResult:
    """Run something over a link, with spans of the way there and of what the agent measured."""
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
    """Say how an execution ended."""
    return {
        "warren.cause": result.cause.value,
        "warren.state": result.state.value,
        "warren.exit_code": result.exit_code,
        "warren.cpu_ms": result.cpu_ms,
    }
