"""OpenTelemetry traces, exported as OTLP over HTTP by a thread. Needs the extra `warren-sandbox[otel]`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import anyio
from anyio import to_thread

from warren.core.telemetry.tracing import Span, Tracer, Value
from warren.domain.errors import ConfigError, Error

try:
    from opentelemetry import context, trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    raise ConfigError(
        "tracing.endpoint is set, but OpenTelemetry is not installed: "
        "run `pip install 'warren_sandbox-….whl[otel]'` with the wheel, `pip install '.[otel]'` in a clone, or unset it"
    ) from None

import warren

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextvars import Token
    from types import TracebackType

    from opentelemetry.context import Context

_SEND_S = 5.0
_PROPAGATED = frozenset({b"traceparent"})
"""Not `tracestate`: it is free text of the caller, and spans would hold it."""


class OtelTracer(Tracer):
    """Creates and exports spans. Spans that cannot be sent are dropped."""

    is_on = True

    def __init__(self, endpoint: str, *, headers: str = "", service_name: str = "warren", ratio: float = 1.0) -> None:
        address = urlsplit(endpoint)
        if address.scheme not in {"http", "https"} or not address.hostname:
            raise ConfigError("tracing.endpoint must be an address such as http://127.0.0.1:4318/v1/traces")
        kept = TraceIdRatioBased(ratio)
        self._provider = TracerProvider(
            # WHY: a caller may opt out of a trace, but cannot have more kept than the operator wants.
            sampler=ParentBased(kept, remote_parent_sampled=kept),
            resource=Resource.create({"service.name": service_name, "service.version": warren.__version__}),
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(endpoint=endpoint, headers=parse_headers(headers), timeout=_SEND_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1000))
        self._tracer = self._provider.get_tracer("warren", warren.__version__)
        self._propagator = TraceContextTextMapPropagator()

    def span(self, name: str, attributes: Mapping[str, Value] | None = None) -> Span:
        """Create a span that starts when it is entered."""
        return _OtelSpan(self._tracer, name, trace.SpanKind.INTERNAL, None, attributes)

    def request(self, headers: Iterable[tuple[bytes, bytes]]) -> Span:
        """Create the span of a request, as a child of its `traceparent`."""
        carrier = {name.decode(): value.decode("latin-1") for name, value in headers if name in _PROPAGATED}
        # WHY: an empty context, because an open span of the server's own task is not a parent.
        within = self._propagator.extract(carrier, context=context.Context())
        return _OtelSpan(self._tracer, "request", trace.SpanKind.SERVER, within, None)

    def past(self, name: str, seconds: float, attributes: Mapping[str, Value | None] | None = None) -> None:
        """Record a span of that duration that ends now."""
        end = time.time_ns()
        span = self._tracer.start_span(name, start_time=end - int(seconds * 1e9), attributes=_given(attributes or {}))
        span.end(end)

    def traceparent(self) -> str | None:
        """Return the current span as a traceparent."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier.get("traceparent")

    async def close(self) -> None:
        """Flush the spans; bounded by a timeout."""
        with anyio.move_on_after(_SEND_S, shield=True):
            await to_thread.run_sync(self._provider.shutdown, abandon_on_cancel=True)


class _OtelSpan(Span):
    def __init__(
        self,
        tracer: trace.Tracer,
        name: str,
        kind: trace.SpanKind,
        within: Context | None,
        attributes: Mapping[str, Value] | None,
    ) -> None:
        self._tracer = tracer
        self._about = (name, kind, within, attributes)
        self._span: trace.Span = trace.INVALID_SPAN
        self._token: Token[Context] | None = None

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        """Add attributes; None values are left out."""
        self._span.set_attributes(_given(attributes))

    def fail(self, kind: str) -> None:
        """Mark the span as failed, with the kind of failure."""
        self._span.set_attribute("error.type", kind)
        self._span.set_status(trace.StatusCode.ERROR)

    def rename(self, name: str) -> None:
        """Rename the span."""
        self._span.update_name(name)

    def __enter__(self) -> Self:
        name, kind, within, attributes = self._about
        self._span = self._tracer.start_span(name, context=within, kind=kind, attributes=attributes)
        self.trace_id = trace.format_trace_id(self._span.get_span_context().trace_id)
        self._token = context.attach(trace.set_span_in_context(self._span, within))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            context.detach(self._token)
        if kind is not None:
            # The class only: a message may quote input of a user.
            self.fail(error.code if isinstance(error, Error) else kind.__name__)
        self._span.end()


def parse_headers(text: str) -> dict[str, str]:
    """Parse `name=value,name=value`. Raises ConfigError without the values."""
    headers = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, is_given, value = part.partition("=")
        if not is_given or not name.strip():
            raise ConfigError("tracing.headers must be name=value, with commas between them")
        headers[name.strip()] = value.strip()
    return headers


def _given(attributes: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in attributes.items() if value is not None}
