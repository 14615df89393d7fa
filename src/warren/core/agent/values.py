"""Parsing the claims of an agent into values of the domain. Any other type or size is a ProtocolError."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from warren.domain import errors
from warren.domain.values import Entry, FileChange
from warren.guest.wire.frames import PROTOCOL_VERSION, Header, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

T = TypeVar("T")

MAX_LISTED = 100_000
_CODES = frozenset(
    {"invalid_request", "outside_workspace", "not_found", "conflict", "too_large", "insufficient_storage"}
    | {"unsupported", "start_failed"}
)
_ENTRY_TYPES = ("file", "directory", "link", "other")
_ACTIONS = ("created", "modified", "deleted")
_NUMBER = (int, float)


@dataclass(frozen=True, slots=True)
class KnownExecution:
    """An execution that the agent knows of when we connect."""

    id: str
    running: bool
    seq: int


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of an agent: its sandbox and its executions."""

    sandbox_id: str
    agent: str
    executions: tuple[KnownExecution, ...]
    kernels: tuple[str, ...] = ()
    """Kernels that have run a cell."""


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
    kernels = tuple(one.name for one in map(parse_kernel, get_objects(header, "kernels")) if one.executed)
    return Hello(get_str(header, "sandbox"), get_str(header, "agent", ""), tuple(executions), kernels)


def parse_error(header: Header) -> errors.Error:
    """Build the exception that an `err` frame stands for."""
    code, message = get_str(header, "code"), get_str(header, "message")[:4096]
    kind = errors.by_code(code) if code in _CODES else None
    return errors.SandboxLost(f"the agent failed: {message}") if kind is None else kind(message)


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
    """Read the state of one kernel."""
    return Kernel(
        name=get_str(value, "name"),
        busy=get_choice(value, "state", ("idle", "busy")) == "busy",
        executed=get_int(value, "executed", 0),
        checkpoints=get_int(value, "checkpoints", 0),
        protected=get_bool(value, "protected", default=False),
        private_bytes=get_optional(value, "private_bytes", get_int) or 0,
    )


def parse_changes(value: list[dict[str, Any]]) -> tuple[FileChange, ...]:
    """Read a list of changed files."""
    return tuple(
        FileChange(get_str(one, "path"), get_choice(one, "action", _ACTIONS), get_int(one, "size")) for one in value
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
    """Return the value that `get` finds, or None where it is null or absent."""
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


def _load(payload: bytes) -> object:
    try:
        return _DECODER.decode(payload.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a payload is not JSON") from error


def _refuse_constant(_name: str) -> float:
    raise ProtocolError("a payload holds a number that JSON does not have")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
