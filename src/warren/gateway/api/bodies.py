"""Request bodies and queries: size and JSON depth are checked before anything is parsed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, JsonValue, StringConstraints, ValidationError

from warren.domain.errors import InvalidRequest, TooLarge, suggest
from warren.gateway.api.problems import InvalidFields

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails
    from starlette.types import Receive, Scope

T = TypeVar("T", bound=BaseModel)

MAX_DEPTH = 64
MAX_PARTS = 10_000
"""Values of one body: above any real request, and parsed in milliseconds."""
MAX_QUERY_FIELDS = 100
_SHOWN, _LISTED = 3, 20

# WHY possessive, and the last quote optional: unclosed quotes would otherwise cause quadratic backtracking.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_MARKS = bytes(set(range(256)) - set(b"[],"))
_PATTERN_WORDS: dict[str, str] = {}


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


class BodyTooLarge(TooLarge):
    """The body of a request is larger than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body of the request is larger than {limit} bytes")
        self.limit = limit


class BodyAnnouncedTooLarge(BodyTooLarge):
    """The same, by `Content-Length`, before any of it was read."""


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Return the whole body. Raises TooLarge, by `Content-Length` before anything is read, and ClientLeft."""
    check_length(scope, limit)
    message = await receive()
    if not message.get("more_body") and message["type"] == "http.request":
        return _within(message.get("body", b""), limit)
    pieces: list[bytes] = []
    size = 0
    while message["type"] == "http.request":
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit:
            raise BodyTooLarge(limit)
        if not message.get("more_body"):
            return b"".join(pieces)
        message = await receive()
    raise ClientLeft


def matching(pattern: str, words: str, *, max_length: int | None = None) -> StringConstraints:
    """Constrain a text to a pattern. `words` continue "must …" in the message, as patterns explain little."""
    _PATTERN_WORDS[pattern] = words
    return StringConstraints(pattern=pattern, max_length=max_length)


def check_length(scope: Scope, limit: int) -> None:
    """Raise TooLarge when `Content-Length` is over the limit."""
    for name, value in scope["headers"]:
        if name == b"content-length" and (len(value) > 18 or int(value) > limit):
            raise BodyAnnouncedTooLarge(limit)


def count_large(scope: Scope, limit: int) -> int:
    """Return the memory that a body may take; 0 below 100 kB, which is not counted."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return 0 if len(value) < 6 else min(int(value), limit)
        if name == b"transfer-encoding":
            return limit
    return 0


def parse_body(model: type[T], raw: bytes) -> T:
    """Read a JSON body. Raises InvalidRequest where it is not JSON, and InvalidFields, which names each field."""
    check_depth(raw)
    try:
        return model.model_validate_json(raw)
    except ValidationError as exc:
        raise _explain(exc, model, raw) from exc


def parse_query(model: type[T], raw: bytes) -> T:
    """Read a query. Raises InvalidRequest with a sentence that names the parameter."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(raw),
            errors="strict",
            max_num_fields=MAX_QUERY_FIELDS,
        )
    except ValueError as exc:
        raise InvalidRequest("the query of the address cannot be read: write name=value, joined by &") from exc
    values: dict[str, object] = {}
    for name, value in pairs:
        field = model.model_fields.get(name)
        if field is not None and field.json_schema_extra == REPEATED:
            several = values.setdefault(name, [])
            assert isinstance(several, list)
            several.append(value)
        elif values.setdefault(name, value) is not value:
            raise InvalidRequest(f"{name} is given twice")
    try:
        return model.model_validate(values)
    except ValidationError as exc:
        raise _explain(exc, model) from exc


REPEATED: dict[str, JsonValue] = {"x-repeated": True}
"""Marks a query parameter that may be repeated."""


def check_depth(raw: bytes) -> None:
    """Raise InvalidRequest when JSON is nested deeper than `MAX_DEPTH` or has more than `MAX_PARTS` values."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH and raw.count(b",") <= MAX_PARTS:
        return
    if raw.count(b'"') - raw.count(b'\\"') > 4 * MAX_PARTS:
        raise InvalidRequest(f"the JSON has more than {MAX_PARTS} values")
    marks = _STRING.sub(b"", raw).translate(_BRACKETS).translate(None, _NOT_MARKS)
    if len(marks) > 3 * MAX_PARTS or marks.count(b",") > MAX_PARTS:
        raise InvalidRequest(f"the JSON has more than {MAX_PARTS} values")
    brackets = marks.replace(b",", b"")
    for _ in range(MAX_DEPTH):
        # WHY: each round removes exactly the innermost level, in C.
        brackets = brackets.replace(b"[]", b"")
    if b"[" in brackets:
        raise InvalidRequest(f"the JSON is nested deeper than {MAX_DEPTH} levels")


def _explain(exc: ValidationError, model: type[BaseModel], raw: bytes = b"-") -> InvalidRequest:
    """Translate pydantic's errors; an unknown name comes with the nearest known one."""
    if not raw.strip():
        return InvalidRequest("the request has no body: send a JSON object")
    found = exc.errors(include_url=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return InvalidRequest(f"the body is not JSON: {_printable(found[0]['ctx']['error'])}")
    errors = [_explain_one(each, model) for each in found[:_LISTED]]
    named = [f"{each['where']}: {each['message']}" if each["where"] else each["message"] for each in errors[:_SHOWN]]
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return InvalidFields("; ".join([*named, *more]), errors)


def _explain_one(error: ErrorDetails, model: type[BaseModel]) -> dict[str, str]:
    where = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        what = "is not known" + (suggest(where[-1][:100], model.model_fields) if len(where) == 1 else "")
    elif error["type"] == "string_pattern_mismatch":
        what = _explain_pattern(error["ctx"]["pattern"])
        if where[-1:] == ["[key]"]:
            # pydantic gives the place of an object's name as if it were a value.
            what = f"the name {where[-2][:100]!r} {what}"
            where = where[:-2]
    else:
        what = error["msg"].removeprefix("Value error, ")
        what = what[:1].lower() + what[1:]
    return {"where": _printable(".".join(where)), "message": _printable(what)}


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text[:1000])


def _within(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise BodyTooLarge(limit)
    return body


def _explain_pattern(pattern: str) -> str:
    return f"must {_PATTERN_WORDS[pattern]}" if pattern in _PATTERN_WORDS else f"must match {pattern}"
