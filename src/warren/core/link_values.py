"""Parsing what an agent says into the domain's values. Anything of another type or size is a ProtocolError."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from warren import errors
from warren.domain import Cause, Display, Entry, Event, ExecResult, FileChange, State
from warren.guest.wire import PROTOCOL_VERSION, Header, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

T = TypeVar("T")

MAX_LISTED = 100_000
_CODES = ("invalid_request", "outside_workspace", "not_found", "conflict", "too_large", "unsupported", "start_failed")
_ENTRY_TYPES = ("file", "directory", "link", "other")
_ACTIONS = ("created", "modified", "deleted")
_CAUSES: dict[str, Cause] = {one.value: one for one in Cause}
_STATES: dict[str, State] = {one.value: one for one in State}
_NUMBER = (int, float)


@dataclass(frozen=True, slots=True)
class KnownExecution:
    """An execution that the agent knows of when we connect."""

    id: str
    running: bool
    seq: int


@dataclass(frozen=True, slots=True)
class Hello:
    """Who answers at the other end."""

    sandbox_id: str
    agent: str
    executions: tuple[KnownExecution, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A live interpreter of the sandbox."""

    name: str
    busy: bool
    executed: int
    checkpoints: int
    protected: bool
    private_bytes: int


@dataclass(frozen=True, slots=True)
class Match:
    """A file, or a line of one, that a search found."""

    path: str
    line: int | None = None
    text: str | None = None


def parse_hello(header: Header) -> Hello:
    """Read the first frame of a connection."""
    if header["t"] != "hello":
        raise ProtocolError("the first frame is not a hello")
    version = get_int(header, "version")
    if version != PROTOCOL_VERSION:
        raise ProtocolError(f"its agent speaks version {version} of the protocol, this service {PROTOCOL_VERSION}")
    executions = [
        KnownExecution(
            get_str(one, "exec"), get_choice(one, "state", ("running", "finished")) == "running", get_int(one, "seq")
        )
        for one in get_objects(header, "executions")
    ]
    return Hello(get_str(header, "sandbox"), get_str(header, "agent", ""), tuple(executions))


def parse_error(header: Header) -> errors.Error:
    """Build the exception that an `err` frame stands for."""
    code, message = get_str(header, "code"), get_str(header, "message")[:4096]
    kind = errors.by_code(code) if code in _CODES else None
    return errors.SandboxLost(f"the agent failed: {message}") if kind is None else kind(message)


def parse_event(header: Header, payload: bytes, exec_id: str, displays: Sequence[Display]) -> Event:
    """Read one event of an execution, in which `displays` came before it."""
    seq = get_int(header, "seq")
    kind = get_choice(header, "kind", ("stdout", "stderr", "display", "result"))
    if kind == "display":
        shown = _parse_display(payload, is_result=get_choice(header, "display", ("result", "display")) == "result")
        return Event(seq, kind, display=shown)
    if kind == "result":
        return Event(seq, kind, result=parse_result(header, payload, exec_id, displays))
    return Event(seq, kind, payload, skipped=get_int(header, "skipped", 0) + get_int(header, "dropped", 0))


def parse_result(header: Header, payload: bytes, exec_id: str, displays: Sequence[Display]) -> ExecResult:
    """Read a `result` event: its JSON, then the output that was kept."""
    parts = header.get("parts")
    if not isinstance(parts, list) or len(parts) != 3 or not all(type(size) is int and size >= 0 for size in parts):
        raise ProtocolError("parts is not a list of three lengths")
    first, second = parts[0], parts[0] + parts[1]
    if second + parts[2] != len(payload):
        raise ProtocolError("the parts of a result are not its whole payload")
    body = parse_object(payload[:first])
    if get_str(body, "exec") != exec_id:
        raise ProtocolError("the result of another execution")
    return ExecResult(
        id=exec_id,
        exit_code=get_optional(body, "exit_code", get_signed),
        cause=_CAUSES[get_choice(body, "cause", _CAUSES)],
        state=_STATES[get_choice(body, "state", _STATES)],
        stdout=payload[first:second],
        stderr=payload[second:],
        displays=tuple(displays),
        stdout_bytes=get_int(body, "stdout_bytes"),
        stderr_bytes=get_int(body, "stderr_bytes"),
        stdout_chars=get_int(body, "stdout_chars", 0),
        stderr_chars=get_int(body, "stderr_chars", 0),
        truncated=get_bool(body, "truncated"),
        error=_parse_exception(body),
        limit=get_optional(body, "limit", get_float),
        peak=get_optional(body, "peak", get_float),
        cells_back=get_int(body, "cells_back", 0),
        protected=get_bool(body, "protected", default=True),
        why_unprotected=get_optional(body, "why_unprotected", get_str),
        files_changed=parse_changes(body.get("files_changed", [])),
        files_changed_complete=get_bool(body, "files_changed_complete", default=True),
        collected=tuple(parse_entry(one) for one in get_objects(body, "collected")),
        collected_complete=get_bool(body, "collected_complete", default=True),
        duration_ms=get_float(body, "duration_ms"),
        cpu_ms=get_float(body, "cpu_ms"),
        hint=get_optional(body, "hint", get_str),
        notes=tuple(_strings(body.get("notes", []))),
    )


def parse_entry(value: object) -> Entry:
    """Read an entry of the workspace."""
    if not isinstance(value, dict):
        raise ProtocolError("an entry is not an object")
    return Entry(
        path=get_str(value, "path"),
        type=get_choice(value, "type", _ENTRY_TYPES),
        size=get_int(value, "size"),
        mode=get_int(value, "mode"),
        mtime_ns=get_signed(value, "mtime_ns"),
        target=get_optional(value, "target", get_str),
    )


def parse_match(value: dict[str, Any]) -> Match:
    """Read one hit of a search."""
    return Match(get_str(value, "path"), get_optional(value, "line", get_int), get_optional(value, "text", get_str))


def parse_kernel(value: dict[str, Any]) -> Kernel:
    """Read what is known of one kernel."""
    return Kernel(
        name=get_str(value, "name"),
        busy=get_choice(value, "state", ("idle", "busy")) == "busy",
        executed=get_int(value, "executed", 0),
        checkpoints=get_int(value, "checkpoints", 0),
        protected=get_bool(value, "protected", default=False),
        private_bytes=get_optional(value, "private_bytes", get_int) or 0,
    )


def parse_changes(value: object) -> tuple[FileChange, ...]:
    """Read a list of changed files."""
    return tuple(
        FileChange(get_str(one, "path"), get_choice(one, "action", _ACTIONS), get_int(one, "size"))
        for one in _objects(value, "files_changed")
    )


def parse_list(payload: bytes) -> list[dict[str, Any]]:
    """Read a payload that is a JSON list of objects."""
    return _objects(_load(payload), "the list")


def parse_object(payload: bytes) -> dict[str, Any]:
    """Read a payload that is a JSON object."""
    value = _load(payload)
    if not isinstance(value, dict):
        raise ProtocolError("a payload is not an object")
    return value


def get_str(source: dict[str, Any], name: str, default: str | None = None) -> str:
    """Return a string."""
    return _typed(source, name, default, str)


def get_bool(source: dict[str, Any], name: str, *, default: bool | None = None) -> bool:
    """Return true or false."""
    return _typed(source, name, default, bool)


def get_signed(source: dict[str, Any], name: str) -> int:
    """Return a whole number of at most 63 bits."""
    value = source.get(name)
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise ProtocolError(f"{name} is not a number")
    return value


def get_int(source: dict[str, Any], name: str, default: int | None = None) -> int:
    """Return a whole number of 0 or more."""
    value = source.get(name, default)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ProtocolError(f"{name} is not a number of 0 or more")
    return value


def get_float(source: dict[str, Any], name: str) -> float:
    """Return a finite number of 0 or more."""
    value = source.get(name)
    if not isinstance(value, _NUMBER) or isinstance(value, bool) or not 0 <= value < 1e18 or not math.isfinite(value):
        raise ProtocolError(f"{name} is not a number of 0 or more")
    return float(value)


def get_choice(source: dict[str, Any], name: str, among: Collection[str]) -> str:
    """Return one of a few words."""
    value = source.get(name)
    if not isinstance(value, str) or value not in among:
        raise ProtocolError(f"{name} is not one of {', '.join(among)}")
    return value


def get_optional(source: dict[str, Any], name: str, get: Callable[[dict[str, Any], str], T]) -> T | None:
    """Return what `get` finds, or None where it is null or absent."""
    return None if source.get(name) is None else get(source, name)


def get_objects(source: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects; empty when it is absent."""
    return _objects(source.get(name, []), name)


def _typed(source: dict[str, Any], name: str, default: T | None, kind: type[T]) -> T:
    value = source.get(name, default)
    if not isinstance(value, kind):
        raise ProtocolError(f"{name} is not of type {kind.__name__}")
    return value


def _objects(value: object, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or len(value) > MAX_LISTED or not all(isinstance(one, dict) for one in value):
        raise ProtocolError(f"{name} is not a list of objects")
    return cast("list[dict[str, Any]]", value)


def _strings(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ProtocolError("notes is not a list of strings")
    return value


def _parse_display(payload: bytes, *, is_result: bool) -> Display:
    body = parse_object(payload)
    data, metadata = body.get("data"), body.get("metadata", {})
    if not isinstance(data, dict) or not all(isinstance(one, str) for one in data.values()):
        raise ProtocolError("a display is not text by MIME type")
    if not isinstance(metadata, dict):
        raise ProtocolError("the metadata of a display is not an object")
    return Display(data, metadata, is_result)


def _parse_exception(body: dict[str, Any]) -> dict[str, str] | None:
    value = body.get("error")
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise ProtocolError("error is not an object of strings")
    return {name: get_str(value, name, "") for name in ("name", "value", "traceback")}


def _load(payload: bytes) -> object:
    try:
        return _DECODER.decode(payload.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a payload is not JSON") from error


def _refuse_constant(_name: str) -> float:
    raise ProtocolError("a payload holds a number that JSON does not have")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
