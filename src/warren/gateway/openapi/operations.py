"""One operation in OpenAPI: parameters, body, answers."""

from __future__ import annotations

import re
import typing
from typing import TYPE_CHECKING, Any

from warren.gateway.api.dispatch import ANY, WEBSOCKET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic import BaseModel

    from warren.gateway.api.operations import Answer, Operation

REF = "#/components/schemas/{model}"
PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
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
_ALL_METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
_BINARY = {"type": "string", "format": "binary"}
_FORM = {"type": "object", "properties": {"file": _BINARY}, "required": ["file"]}
_EVENT = {
    "type": "object",
    "description": "One event of the stream; `data` is JSON.",
    "properties": {"event": {"type": "string"}, "id": {"type": "string"}, "data": {"type": "string"}},
    "required": ["event", "data"],
}
REQUEST_ID = {
    "X-Request-ID": {"description": "Names this request in logs and the audit record.", "schema": {"type": "string"}}
}


def list_methods(operation: Operation) -> tuple[str, ...]:
    """Return the methods that describe an operation."""
    if operation.method == ANY:
        return _ALL_METHODS
    # OpenAPI has no WebSockets: each begins as a GET.
    return ("get" if operation.method == WEBSOCKET else operation.method.lower(),)


def list_models(operations: Iterable[Operation]) -> list[type[BaseModel]]:
    """Return the models of all bodies, queries and answers, each once."""
    found: dict[type[BaseModel], None] = {}
    for operation in operations:
        wanted = [operation.body, operation.query, *(_element(answer.model) for answer in operation.answers)]
        found.update(dict.fromkeys(model for model in wanted if model is not None))
    return list(found)


def _element(model: Any) -> Any:
    return typing.get_args(model)[0] if typing.get_origin(model) is list else model


def describe_operation(
    operation: Operation, refs: dict[Any, Any], schemas: dict[str, Any], method: str
) -> dict[str, Any]:
    """Describe an operation. The model of its query becomes parameters, and leaves `schemas`."""
    described: dict[str, Any] = {
        "operationId": name_of(operation) + (f"_{method}" if operation.method == ANY else ""),
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


def name_of(operation: Operation) -> str:
    """Return the id of an operation."""
    return operation.handler.__name__.strip("_")


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
    for name in PARAMETER.findall(operation.path):
        schema = dict(_PATH_SCHEMAS.get(name, _PATH_SCHEMA))
        example = {"example": schema.pop("example")} if "example" in schema else {}
        yield {"name": name, "in": "path", "required": True, "schema": schema, **example}
    if operation.query is not None:
        model = schemas.pop(refs[operation.query]["$ref"].rpartition("/")[2], None)
        if model is None:
            model = clean_schema(operation.query.model_json_schema(ref_template=REF))
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
            str(answer.status), {"description": answer.description, "headers": {**REQUEST_ID}, "content": {}}
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


def clean_schema(schema: Any) -> Any:
    """Drop pydantic's titles, our own marks, and defaults that stand for absence."""
    if isinstance(schema, list):
        return [clean_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {field: clean_schema(each) for field, each in value.items()}
        if name == "properties"
        else clean_schema(value)
        for name, value in schema.items()
        if name not in {"title", "x-repeated"} and not (name == "default" and value in (None, ""))
    }
