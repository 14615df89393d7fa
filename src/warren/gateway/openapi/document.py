"""The OpenAPI document, built from the operations that are served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

import warren
from warren.gateway.api.bodies import MAX_DEPTH
from warren.gateway.api.dispatch import PREFIX
from warren.gateway.openapi.operations import (
    PARAMETER,
    REF,
    REQUEST_ID,
    clean_schema,
    describe_operation,
    list_methods,
    list_models,
    name_of,
)
from warren.gateway.openapi.problems import DETAIL, MEANINGS, describe_detail, describe_problem, problem_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warren.gateway.api.operations import Operation
    from warren.gateway.dialects.dialect import Dialect

_MADE: tuple[tuple[str, str, tuple[str, ...], dict[str, str]], ...] = (
    ("post", "/sandboxes", ("200", "201"), {"sandbox_id": "$response.body#/id"}),
    (
        "post",
        "/sandboxes/{sandbox_id}/exec",
        ("200", "202"),
        {"sandbox_id": "$request.path.sandbox_id", "execution_id": "$response.body#/execution_id"},
    ),
)
"""Operations whose answers hold ids, and the parameters that take them."""
_SHARED_TAGS = ("Operation",)
"""Tags of the service's own addresses that clients of a dialect use too."""
_TAGS = (
    "One-shot",
    "Sandboxes",
    "Executions",
    "Files",
    "Kernels",
    "Terminals",
    "Ports",
    "Links",
    "Egress",
    "Packages",
    "Skills",
    "Slides",
    "Images",
    "Audit",
    "Operation",
)
"""In the order of a first reading."""
_JSON, _TEXT, _HTML = "application/json", "text/plain", "text/html"
_SERVICE: tuple[tuple[str, str, tuple[int, ...], str, bool], ...] = (
    ("/livez", "Whether the process answers", (200,), _JSON, False),
    ("/readyz", "Whether it can do its work", (200, 503), _JSON, False),
    ("/healthz", "The same, with the version", (200, 503), _JSON, False),
    ("/health", "The same, in the words of other products", (200,), _JSON, False),
    ("/healthz/details", "How everything is, for admins", (200, 503), _JSON, True),
    ("/health/details", "The same", (200, 503), _JSON, True),
    ("/metrics", "Numbers for Prometheus", (200,), _TEXT, True),
    ("/openapi.json", "This document", (200,), _JSON, False),
    ("/docs/api", "This document as a page", (200,), _HTML, False),
)
SERVICE_PATHS = frozenset(address[0] for address in _SERVICE)
"""Addresses of the service itself, which are not operations: for probes, scrapers and readers."""
_ABOUT = f"""Sandboxes that run code for AI agents.

* Send a key, or a token where tokens are taken, as `Authorization: Bearer …` or `X-API-Key`. Of the scopes `read`,
`run` and `admin` each includes the ones before.
* Failures are problem details (RFC 9457) with a stable `code`. What a program does wrong is a result, not a failure.
* Text that programs wrote is decoded as UTF-8, and what is none becomes U+FFFD; `encoding: base64` gives the bytes.
* JSON is nested at most {MAX_DEPTH} levels deep. Unknown fields and parameters are refused.
* Models find their tools at `/mcp` (MCP), with the same keys, unless the operator switched that off.
"""


def build_openapi(operations: Iterable[Operation], *, with_auth: bool) -> dict[str, Any]:
    """Build the document of the native API, and of the addresses that are not operations, such as `/livez`."""
    listed = tuple(operations)
    paths, schemas = _describe_all(listed, PREFIX)
    _add_links(listed, paths)
    return _assemble(
        {"title": "Warren", "version": warren.__version__, "description": _ABOUT},
        tags=_TAGS,
        paths=paths | _describe_service(with_auth=with_auth),
        schemas={**schemas, "Problem": problem_schema()},
        responses={f"Problem{status}": describe_problem(status, REQUEST_ID) for status in MEANINGS},
        with_auth=with_auth,
    )


def build_dialect_openapi(dialect: Dialect, *, with_auth: bool) -> dict[str, Any]:
    """Build the document of a dialect, which has its own shape of errors."""
    paths, schemas = _describe_all(dialect.operations, "")
    shared = _describe_service(with_auth=with_auth)
    paths |= {path: shared[path] for path in shared if path in dialect.shared_paths}
    return _assemble(
        {"title": dialect.title, "version": warren.__version__, "description": dialect.about},
        tags=tuple(dict.fromkeys((*(operation.tag for operation in dialect.operations), *_SHARED_TAGS))),
        paths=paths,
        schemas={**schemas, "Detail": DETAIL},
        responses={f"Problem{status}": describe_detail(status, REQUEST_ID) for status in MEANINGS},
        with_auth=with_auth,
    )


def _describe_service(*, with_auth: bool) -> dict[str, Any]:
    """Describe the addresses of the service itself."""
    paths: dict[str, Any] = {}
    for path, summary, statuses, kind, needs_key in _SERVICE:
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


def _describe_all(listed: tuple[Operation, ...], prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the paths and the schemas that they name."""
    refs, definitions = models_json_schema([(model, "validation") for model in list_models(listed)], ref_template=REF)
    refs_by_model = {model: schema for (model, _), schema in refs.items()}
    schemas = {name: clean_schema(schema) for name, schema in definitions.get("$defs", {}).items()}
    paths: dict[str, Any] = {}
    for operation in listed:
        path = PARAMETER.sub(r"{\1}", prefix + operation.path)
        for method in list_methods(operation):
            # A WebSocket begins as a GET; where its path has a GET too, that is described.
            paths.setdefault(path, {}).setdefault(method, describe_operation(operation, refs_by_model, schemas, method))
    _tell_apart(paths)
    return paths, schemas


def _tell_apart(paths: dict[str, Any]) -> None:
    """Make operation ids unique where one handler serves several operations."""
    known: dict[str, int] = {}
    for methods in paths.values():
        for described in methods.values():
            name = described["operationId"]
            known[name] = known.get(name, 0) + 1
            if known[name] > 1:
                described["operationId"] = f"{name}_{known[name]}"


def _assemble(
    info: dict[str, str],
    *,
    tags: tuple[str, ...],
    paths: dict[str, Any],
    schemas: dict[str, Any],
    responses: dict[str, Any],
    with_auth: bool,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": info,
        "tags": [{"name": tag} for tag in tags],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": responses,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "`wrn_…`, or a JWT"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }
    if with_auth:
        document["security"] = [{"bearer": []}, {"header": []}]
    return document


def _add_links(operations: Iterable[Operation], paths: dict[str, Any]) -> None:
    """Link the ids of an answer to the operations that take them."""
    for method, path, statuses, taken in _MADE:
        found = {
            name_of(each): {"operationId": name_of(each), "parameters": taken}
            for each in operations
            if set(PARAMETER.findall(each.path)) == set(taken)
        }
        for status in statuses:
            paths[PREFIX + path][method]["responses"][status]["links"] = found
