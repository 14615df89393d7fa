"""The OpenAPI document, built from the operations themselves: what is served is what is described."""

from __future__ import annotations

import re
import typing
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

import warren
from warren.gateway.bodies import MAX_DEPTH
from warren.gateway.dispatch import ANY, PREFIX, WEBSOCKET
from warren.gateway.openapi_health import describe_health
from warren.gateway.openapi_problems import DETAIL, MEANINGS, describe_detail, describe_problem, problem_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic import BaseModel

    from warren.gateway.dialects.dialect import Dialect
    from warren.gateway.operations import Answer, Operation

_REF = "#/components/schemas/{model}"
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
_PATH_SCHEMAS: dict[str, dict[str, Any]] = {
    "sandbox_id": {"type": "string", "pattern": "^sbx_[a-z0-9]{8,40}$", "example": "sbx_0123456789abcdef01234567"},
    "execution_id": {"type": "string", "pattern": "^exe_[a-z0-9]{8,40}$", "example": "exe_0123456789abcdef01234567"},
    "container_id": {"type": "string", "pattern": "^[0-9a-f]{64}$", "example": "0123456789abcdef" * 4},
    "grant_id": {"type": "string", "pattern": "^grt_[a-z0-9]{8,40}$", "example": "grt_0123456789abcdef01234567"},
    "secret": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,127}$", "example": "API_TOKEN"},
    "skill_id": {"type": "string", "pattern": "^skl_[a-z0-9]{8,40}$", "example": "skl_0123456789abcdef01234567"},
    "image": {"type": "string", "minLength": 1, "maxLength": 200, "example": "python"},
    "kernel": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", "example": "main"},
    "terminal": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", "example": "main"},
    "port": {"type": "integer", "minimum": 1, "maximum": 65_535, "example": 5000},
    "path": {"type": "string", "minLength": 1, "maxLength": 4096, "example": "data.csv"},
}
_PATH_SCHEMA: dict[str, Any] = {"type": "string", "minLength": 1}
_MADE: tuple[tuple[str, str, tuple[str, ...], dict[str, str]], ...] = (
    ("post", "/sandboxes", ("200", "201"), {"sandbox_id": "$response.body#/id"}),
    (
        "post",
        "/sandboxes/{sandbox_id}/exec",
        ("200", "202"),
        {"sandbox_id": "$request.path.sandbox_id", "execution_id": "$response.body#/execution_id"},
    ),
)
"""Operations whose answers hold ids, and under which names others take them."""
_ALL_METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
_SHARED_TAGS = ("Operation",)
"""Of the addresses of the service itself that clients of a dialect use too."""
_BINARY = {"type": "string", "format": "binary"}
_FORM = {"type": "object", "properties": {"file": _BINARY}, "required": ["file"]}
_EVENT = {
    "type": "object",
    "description": "One event of the stream; `data` is JSON.",
    "properties": {"event": {"type": "string"}, "id": {"type": "string"}, "data": {"type": "string"}},
    "required": ["event", "data"],
}
_REQUEST_ID = {
    "X-Request-ID": {"description": "Names this request in logs and the audit record.", "schema": {"type": "string"}}
}
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
"""In the order in which somebody new meets them."""
_ABOUT = f"""Sandboxes that run code for AI agents.

* Send a key, or a token where tokens are taken, as `Authorization: Bearer …` or `X-API-Key`. Of the scopes `read`,
`run` and `admin` each includes the ones before.
* Failures are problem details (RFC 9457) with a stable `code`. What a program does wrong is a result, not a failure.
* Text that programs wrote is decoded as UTF-8, and what is none becomes U+FFFD; `encoding: base64` gives the bytes.
* JSON is nested at most {MAX_DEPTH} levels deep. Unknown fields and parameters are refused.
* Models find their tools at `/mcp` (MCP), with the same keys, unless the operator switched that off.
"""


def build_openapi(operations: Iterable[Operation], *, with_auth: bool, more_paths: dict[str, Any]) -> dict[str, Any]:
    """Build the document of the native API. `more_paths` are those that are not operations, such as `/livez`."""
    listed = tuple(operations)
    paths, schemas = _describe_all(listed, PREFIX)
    _add_links(listed, paths)
    return _assemble(
        {"title": "Warren", "version": warren.__version__, "description": _ABOUT},
        tags=_TAGS,
        paths=paths | more_paths,
        schemas={**schemas, "Problem": problem_schema()},
        responses={f"Problem{status}": describe_problem(status, _REQUEST_ID) for status in MEANINGS},
        with_auth=with_auth,
    )


def build_dialect_openapi(dialect: Dialect, *, with_auth: bool) -> dict[str, Any]:
    """Build the document of a dialect, which says in its own words what goes wrong."""
    paths, schemas = _describe_all(dialect.operations, "")
    shared = describe_health(with_auth=with_auth)
    paths |= {path: shared[path] for path in shared if path in dialect.shared_paths}
    return _assemble(
        {"title": dialect.title, "version": warren.__version__, "description": dialect.about},
        tags=tuple(dict.fromkeys((*(operation.tag for operation in dialect.operations), *_SHARED_TAGS))),
        paths=paths,
        schemas={**schemas, "Detail": DETAIL},
        responses={f"Problem{status}": describe_detail(status, _REQUEST_ID) for status in MEANINGS},
        with_auth=with_auth,
    )


def _describe_all(listed: tuple[Operation, ...], prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the paths and the schemas that they name."""
    refs, definitions = models_json_schema([(model, "validation") for model in _models(listed)], ref_template=_REF)
    refs_by_model = {model: schema for (model, _), schema in refs.items()}
    schemas = {name: _clean(schema) for name, schema in definitions.get("$defs", {}).items()}
    paths: dict[str, Any] = {}
    for operation in listed:
        path = _PARAMETER.sub(r"{\1}", prefix + operation.path)
        for method in _methods(operation):
            # What begins as a GET that something else takes too is described there.
            paths.setdefault(path, {}).setdefault(method, _describe(operation, refs_by_model, schemas, method))
    _tell_apart(paths)
    return paths, schemas


def _tell_apart(paths: dict[str, Any]) -> None:
    """Give each operation a name of its own, also where one handler serves several."""
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


def _methods(operation: Operation) -> tuple[str, ...]:
    if operation.method == ANY:
        return _ALL_METHODS
    # OpenAPI knows no WebSockets: each begins as a GET.
    return ("get" if operation.method == WEBSOCKET else operation.method.lower(),)


def _models(operations: Iterable[Operation]) -> list[type[BaseModel]]:
    found: dict[type[BaseModel], None] = {}
    for operation in operations:
        wanted = [operation.body, operation.query, *(_element(answer.model) for answer in operation.answers)]
        found.update(dict.fromkeys(model for model in wanted if model is not None))
    return list(found)


def _element(model: Any) -> Any:
    return typing.get_args(model)[0] if typing.get_origin(model) is list else model


def _describe(operation: Operation, refs: dict[Any, Any], schemas: dict[str, Any], method: str = "") -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": _name(operation) + (f"_{method}" if operation.method == ANY else ""),
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": f"{operation.description} {_need(operation)}".strip(),
        "parameters": list(_parameters(operation, refs, schemas)),
        "responses": dict(_responses(operation, refs)),
    }
    if operation.grant is None:
        described["security"] = []
    body = _request_body(operation, refs)
    if body is not None:
        described["requestBody"] = body
    return described


def _need(operation: Operation) -> str:
    return "Needs no key." if operation.grant is None else f"Needs the scope `{operation.grant}`."


def _name(operation: Operation) -> str:
    return operation.handler.__name__.strip("_") + ("_again" if operation.path.endswith("/resume") else "")


def _add_links(operations: Iterable[Operation], paths: dict[str, Any]) -> None:
    """Say where the ids in an answer lead to."""
    for method, path, statuses, taken in _MADE:
        found = {
            _name(each): {"operationId": _name(each), "parameters": taken}
            for each in operations
            if set(_PARAMETER.findall(each.path)) == set(taken)
        }
        for status in statuses:
            paths[PREFIX + path][method]["responses"][status]["links"] = found


def _request_body(operation: Operation, refs: dict[Any, Any]) -> dict[str, Any] | None:
    content: dict[str, Any]
    if operation.raw_body is not None:
        is_form = operation.raw_body.startswith("multipart/")
        content = {"schema": _FORM if is_form else _BINARY}
        if operation.example is not None:
            content["example"] = operation.example
        return {"required": is_form, "content": {operation.raw_body: content}}
    if operation.body is None:
        return None
    content = {"schema": refs[operation.body]}
    if operation.example is not None:
        content["example"] = operation.example
    return {"required": not operation.body_is_optional, "content": {"application/json": content}}


def _parameters(operation: Operation, refs: dict[Any, Any], schemas: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in _PARAMETER.findall(operation.path):
        schema = dict(_PATH_SCHEMAS.get(name, _PATH_SCHEMA))
        example = {"example": schema.pop("example")} if "example" in schema else {}
        yield {"name": name, "in": "path", "required": True, "schema": schema, **example}
    if operation.query is not None:
        model = schemas.pop(refs[operation.query]["$ref"].rpartition("/")[2], None)
        if model is None:
            model = _clean(operation.query.model_json_schema(ref_template=_REF))
        for name, schema in model["properties"].items():
            description = schema.pop("description", "")
            is_required = name in model.get("required", ())
            yield {"name": name, "in": "query", "required": is_required, "description": description, "schema": schema}
    for name, about in operation.headers.items():
        yield {"name": name, "in": "header", "required": False, **about}


def _responses(operation: Operation, refs: dict[Any, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    by_status: dict[str, dict[str, Any]] = {}
    for answer in operation.answers:
        response = by_status.setdefault(
            str(answer.status), {"description": answer.description, "headers": {**_REQUEST_ID}, "content": {}}
        )
        if answer.description not in response["description"]:
            response["description"] += f" Or: {answer.description}"
        response["headers"] |= {
            name: {"description": text, "schema": {"type": "string"}} for name, text in answer.headers.items()
        }
        if answer.status not in {101, 204, 304} and operation.method != "HEAD":
            response["content"][answer.content_type] = _content(answer, refs)
    for response in by_status.values():
        if not response["content"]:
            del response["content"]
    yield from by_status.items()
    for status in sorted(_problems(operation) - {int(status) for status in by_status}):
        yield str(status), {"$ref": f"#/components/responses/Problem{status}"}


def _content(answer: Answer, refs: dict[Any, Any]) -> dict[str, Any]:
    element = _element(answer.model)
    if answer.content_type == "text/event-stream":
        schema: Any = _EVENT
    elif element is None:
        schema = {"type": "string"}
    else:
        schema = refs[element] if element is answer.model else {"type": "array", "items": refs[element]}
    return {"schema": schema} | ({} if answer.example is None else {"example": answer.example})


def _problems(operation: Operation) -> set[int]:
    found = {400, 401, 403, 414, 429, 431, 500, 503, *operation.errors}
    if operation.method == WEBSOCKET:
        found.add(426)
    if operation.body is not None:
        found |= {413, 415, 422}
    if operation.raw_body is not None:
        found |= {413, 422}
    if operation.query is not None or operation.body is None:
        found.add(422)
    return found


def _clean(schema: Any) -> Any:
    """Drop what pydantic adds and says nothing: titles, our own marks, defaults that stand for absence."""
    if isinstance(schema, list):
        return [_clean(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {field: _clean(each) for field, each in value.items()} if name == "properties" else _clean(value)
        for name, value in schema.items()
        if name not in {"title", "x-repeated"} and not (name == "default" and value in (None, ""))
    }
