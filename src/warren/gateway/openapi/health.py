"""The addresses for probes, scrapers and readers in the OpenAPI document."""

from __future__ import annotations

from typing import Any

_JSON, _TEXT, _HTML = "application/json", "text/plain", "text/html"
_ADDRESSES: tuple[tuple[str, str, tuple[int, ...], str, bool], ...] = (
    ("/livez", "Whether the process answers", (200,), _JSON, False),
    ("/readyz", "Whether it can do its work", (200, 503), _JSON, False),
    ("/healthz", "The same, with the version", (200, 503), _JSON, False),
    ("/health", "The same, in the words of other products", (200,), _JSON, False),
    ("/healthz/details", "How everything is, for admins", (200, 503), _JSON, True),
    ("/health/details", "The same", (200, 503), _JSON, True),
    ("/metrics", "Numbers for Prometheus", (200,), _TEXT, True),
    ("/openapi.json", "This document", (200,), _JSON, False),
    ("/docs", "This document as a page", (200,), _HTML, False),
)
PATHS = frozenset(address[0] for address in _ADDRESSES)


def describe_health(*, with_auth: bool) -> dict[str, Any]:
    """Build their paths."""
    paths: dict[str, Any] = {}
    for path, summary, statuses, kind, needs_key in _ADDRESSES:
        schema = {"type": "object"} if kind == _JSON else {"type": "string"}
        responses: dict[str, Any] = {
            str(status): {"description": summary + ".", "content": {kind: {"schema": schema}}} for status in statuses
        }
        refusals = (401, 403, 500, 503) if needs_key else (403, 500)
        responses |= {
            str(each): {"$ref": f"#/components/responses/Problem{each}"}
            for each in refusals
            if str(each) not in responses
        }
        operation: dict[str, Any] = {
            "operationId": path.strip("/").replace("/", "_").replace(".", "_"),
            "tags": ["Operation"],
            "summary": summary,
            "description": summary + ".",
            "parameters": [],
            "responses": responses,
        }
        if with_auth and not needs_key:
            operation["security"] = []
        paths[path] = {"get": operation}
    return paths
