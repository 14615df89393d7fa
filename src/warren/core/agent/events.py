"""Parsing the events and the result of an execution. Everything that an agent sends is a claim."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from warren.core.agent.values import (
    get_bool,
    get_choice,
    get_float,
    get_int,
    get_objects,
    get_optional,
    get_signed,
    get_str,
    parse_changes,
    parse_entry,
    parse_object,
)
from warren.domain.values import Cause, Display, Event, ExecResult, State
from warren.guest.wire.claims import is_bounded
from warren.guest.wire.frames import EVENT_COST, MAX_DISPLAY_BYTES, Header, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warren.domain.values import Entry, FileChange

T = TypeVar("T")

MAX_SHOWN = 24 << 20
"""Memory for the displays of an execution. An agent sends less, unless they are very many or not text."""
_MAX_BODY = 1 << 20
_KINDS = ("stdout", "stderr", "display", "result")
_DISPLAYS = ("result", "display")
_CAUSES: dict[str, Cause] = {one.value: one for one in Cause}
_STATES: dict[str, State] = {one.value: one for one in State}


class Shown:
    """The displays of an execution so far, for its result; bounded, as bytes and as Python objects."""

    def __init__(self) -> None:
        self.kept: list[Display] = []
        self.missed = 0
        self._bytes = 0
        self._room = MAX_SHOWN

    def add(self, payload: bytes, kind: object) -> Display:
        """Parse one more, and keep it where there is room."""
        self._bytes += len(payload)
        if self._bytes > MAX_DISPLAY_BYTES:
            raise ProtocolError("more was displayed than an execution may display")
        display = _parse_display(payload, kind)
        self._room -= len(payload) + _weigh(display)
        if self._room >= 0:
            self.kept.append(display)
        else:
            self.missed += 1
        return display


def parse_event(header: Header, payload: bytes, exec_id: str, shown: Shown) -> Event:
    """Parse one event of an execution, and add a display to `shown`."""
    seq, kind = get_int(header, "seq"), get_choice(header, "kind", _KINDS)
    if kind == "display":
        return Event(seq, kind, display=shown.add(payload, header.get("display")))
    if kind == "result":
        return Event(seq, kind, result=parse_result(header, payload, exec_id, shown))
    return Event(seq, kind, payload, skipped=get_int(header, "skipped", 0) + get_int(header, "dropped", 0))


def parse_result(header: Header, payload: bytes, exec_id: str, shown: Shown) -> ExecResult:
    """Parse a result: its JSON, the kept output, and the displays that did not come as events before it."""
    content, stdout, stderr, *displays = _cut(payload, header.get("parts"))
    kinds = header.get("displays", [])
    if not isinstance(kinds, list) or len(kinds) != len(displays):
        raise ProtocolError("the displays of a result are not as many as it says")
    if len(content) > _MAX_BODY:
        raise ProtocolError("a result is longer than its JSON may be")
    body = parse_object(content)
    if get_str(body, "exec") != exec_id:
        raise ProtocolError("the result of another execution")
    # Only what is there: an agent leaves out the defaults of these fields.
    fields = {name: read(body, name) for name, read in _FIELDS.items() if name in body}
    for display, kind in zip(displays, kinds, strict=True):
        shown.add(display, kind)
    if shown.missed:
        note = f"{shown.missed} displays were dropped: too much was displayed to hold it."
        fields["notes"] = (*fields.get("notes", ()), note)
    return ExecResult(
        id=exec_id,
        exit_code=fields.pop("exit_code", 0),
        cause=fields.pop("cause", Cause.EXITED),
        state=fields.pop("state", State.KEPT),
        stdout=stdout,
        stderr=stderr,
        displays=tuple(shown.kept),
        duration_ms=get_float(body, "duration_ms"),
        cpu_ms=get_float(body, "cpu_ms"),
        **fields,
    )


def _cut(payload: bytes, sizes: object) -> list[bytes]:
    if not isinstance(sizes, list) or len(sizes) < 3 or not all(type(size) is int and size >= 0 for size in sizes):
        raise ProtocolError("parts is not a list of three lengths or more")
    if sum(sizes) != len(payload):
        raise ProtocolError("the parts of a result are not its whole payload")
    pieces, at = [], 0
    for size in sizes:
        pieces.append(payload[at : at + size])
        at += size
    return pieces


def _parse_display(payload: bytes, kind: object) -> Display:
    body = parse_object(payload)
    data, metadata = body.get("data"), body.get("metadata", {})
    if kind not in _DISPLAYS:
        raise ProtocolError("a display is of no kind")
    if not isinstance(data, dict) or not _are_strings(data.values()):
        raise ProtocolError("a display is not text by MIME type")
    if not isinstance(metadata, dict) or not is_bounded(metadata):
        raise ProtocolError("the metadata of a display is not an object, or more than an agent passes on")
    return Display(data, metadata, kind == "result")


def _weigh(display: Display) -> int:
    """Estimate the memory of a display besides its text: a list of empty lists is 27 times as large as its JSON."""
    weight = EVENT_COST * (1 + len(display.data))
    return weight + 32 * len(str(display.metadata)) if display.metadata else weight


def _are_strings(values: Any) -> bool:
    return all(isinstance(one, str) for one in values)


def _get_exception(source: dict[str, Any], name: str) -> dict[str, str]:
    value = source[name]
    if not isinstance(value, dict) or not _are_strings(value.values()):
        raise ProtocolError(f"{name} is not an object of strings")
    return {part: get_str(value, part, "") for part in ("name", "value", "traceback")}


def _get_changes(source: dict[str, Any], name: str) -> tuple[FileChange, ...]:
    return parse_changes(get_objects(source, name))


def _get_entries(source: dict[str, Any], name: str) -> tuple[Entry, ...]:
    return tuple(map(parse_entry, get_objects(source, name)))


def _get_strings(source: dict[str, Any], name: str) -> tuple[str, ...]:
    value = source[name]
    if not isinstance(value, list) or not _are_strings(value):
        raise ProtocolError(f"{name} is not a list of strings")
    return tuple(value)


def _get_member(source: dict[str, Any], name: str, *, among: Mapping[str, T]) -> T:
    return among[get_choice(source, name, among.keys())]


_FIELDS: dict[str, Callable[[dict[str, Any], str], Any]] = {
    "exit_code": partial(get_optional, get=get_signed),
    "cause": partial(_get_member, among=_CAUSES),
    "state": partial(_get_member, among=_STATES),
    "stdout_bytes": get_int,
    "stderr_bytes": get_int,
    "stdout_chars": get_int,
    "stderr_chars": get_int,
    "truncated": get_bool,
    "error": partial(get_optional, get=_get_exception),
    "limit": partial(get_optional, get=get_float),
    "peak": partial(get_optional, get=get_float),
    "cells_back": get_int,
    "protected": get_bool,
    "why_unprotected": partial(get_optional, get=get_str),
    "files_changed": _get_changes,
    "files_changed_complete": get_bool,
    "collected": _get_entries,
    "collected_complete": get_bool,
    "hint": partial(get_optional, get=get_str),
    "notes": _get_strings,
}
