"""Errors of the dialects: `{"detail": …}`, a sentence, or a list that names each field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import orjson
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from warren.domain.errors import Error
from warren.gateway.api.bodies import MAX_QUERY_FIELDS, check_depth
from warren.gateway.api.operations import dump
from warren.gateway.api.problems import build_problem, log_failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T", bound=BaseModel)

_LISTED = 50
_ECHOED = 2000
"""Characters of the input that each error repeats: a body may be full of errors."""


class IgnoredQuery(BaseModel):
    """The query of operations that read none: whatever it holds is passed over."""


class Refused(Exception):
    """A request that a dialect refuses with a message of its contract."""

    def __init__(self, status: int, detail: object, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})


def parse_body(model: type[T], raw: bytes) -> T:
    """Read a JSON body. Raises Refused with 422, with each field's place under `body`."""
    check_depth(raw)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        if not raw.strip():
            raise Refused(422, [missing(["body"])]) from None
        detail = describe("json_invalid", ["body", exc.pos], "JSON decode error", {}) | {"ctx": {"error": exc.msg}}
        raise Refused(422, [detail]) from None
    try:
        # `from_attributes` as FastAPI does: pydantic's error for a value that is not an object is then the same.
        return model.model_validate(value, from_attributes=True)
    except ValidationError as exc:
        raise Refused(422, list_errors(exc, ("body",))) from None


def parse_query(model: type[T], raw: bytes) -> T:
    """Read a query; the last of repeated fields counts. Raises Refused with 422."""
    try:
        pairs = parse_qsl(raw.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        raise Refused(422, [describe("query_invalid", ["query"], "The query has too many fields", None)]) from None
    try:
        return model.model_validate(dict(pairs))
    except ValidationError as exc:
        raise Refused(422, list_errors(exc, ("query",))) from None


def list_errors(exc: ValidationError, where: Sequence[str], *, with_url: bool = False) -> list[dict[str, Any]]:
    """List pydantic's errors as clients of these APIs expect them: type, loc, msg and input of each."""
    found = exc.errors(include_url=with_url, include_context=True)[:_LISTED]
    listed = []
    for each in found:
        shown: dict[str, Any] = {
            **each,
            "loc": [*where, *(_cut(part, [_ECHOED]) for part in each["loc"])],
            "input": _cut(each["input"], [_ECHOED]),
        }
        if "ctx" in shown:
            # An exception of ours is not JSON.
            shown["ctx"] = {
                name: str(value) if isinstance(value, Exception) else value for name, value in each["ctx"].items()
            }
        listed.append(shown)
    return listed


def _cut(value: object, left: list[int]) -> object:
    """Return the input, cut to the characters that are left."""
    left[0] -= 1
    if isinstance(value, str):
        shown = value[: max(left[0], 0)]
        left[0] -= len(shown)
        return value if len(shown) == len(value) else f"{shown}…"
    if isinstance(value, dict):
        return {_cut(name, left): _cut(each, left) for name, each in value.items() if left[0] > 0}
    if isinstance(value, list):
        return [_cut(each, left) for each in value if left[0] > 0]
    return value


def respond(exc: BaseException, request_id: str) -> Response:
    """Build the answer to a request that ended in an exception."""
    if isinstance(exc, Refused):
        return reply(exc.status, exc.detail, exc.headers)
    problem = build_problem(exc)
    if problem.status == 500:
        log_failure(exc, request_id)
    status = 422 if isinstance(exc, Error) and problem.status == 400 else problem.status
    return reply(status, problem.detail, problem.headers)


def reply(status: int, detail: object, headers: Mapping[str, str] | None = None) -> Response:
    """Build an error."""
    return Response(dump({"detail": detail}), status, dict(headers or {}), "application/json")


def too_long(where: list[str], value: object, most: int) -> dict[str, Any]:
    """Build pydantic's error of a text that is too long."""
    said = f"String should have at most {most} characters"
    return describe("string_too_long", where, said, value) | {"ctx": {"max_length": most}}


def too_large(field: str, value: float, most: float) -> dict[str, Any]:
    """Build pydantic's error of a number that is too large."""
    said = f"Input should be less than or equal to {most}"
    return describe("less_than_equal", ["body", field], said, value) | {"ctx": {"le": most}}


def missing(where: list[str]) -> dict[str, Any]:
    """Build pydantic's error of a missing field."""
    return describe("missing", where, "Field required", None)


def describe(kind: str, where: Sequence[object], message: str, value: object) -> dict[str, Any]:
    """Build an error as pydantic lists it."""
    return {"type": kind, "loc": where, "msg": message, "input": value}
