"""One execution: its numbered events, its listeners, and at the end its result.

An execution belongs to the agent, not to a connection: listeners come and go, and may be slow.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from warren.guest.wire.frames import CHUNK, EVENT_COST, MAX_DISPLAY_BYTES
from warren.guest.wire.output import HeadTail
from warren.guest.wire.streams import BUSY_BACKLOG

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.executions.pipes import Stdin
    from warren.guest.wire.frames import Header
    from warren.guest.wire.run_request import RunRequest
    from warren.guest.wire.streams import Stream

MAX_EVENT_BYTES = 8 << 20
MAX_RESULT_JSON = (1 << 20) - 4096
USUAL: dict[str, Any] = {
    "kind": "cell",
    "kernel": "main",
    "exit_code": 0,
    "cause": "exited",
    "limit": None,
    "peak": None,
    "state": "kept",
    "cells_back": 0,
    "protected": True,
    "why_unprotected": None,
    "error": None,
    "stdout_bytes": 0,
    "stderr_bytes": 0,
    "stdout_chars": 0,
    "stderr_chars": 0,
    "truncated": False,
    "files_changed": [],
    "files_changed_complete": True,
    "collected": [],
    "collected_complete": True,
    "hint": None,
    "notes": [],
}
"""The usual value of each field; a whole answer leaves these out. No other answer does: an older gateway, which does
not know whole answers, does not know these defaults either."""


@dataclass(slots=True, eq=False)
class Listener:
    """One attached stream and its position."""

    stream: Stream
    seq: int
    position: int
    """Bytes of output that it received or missed so far."""
    last: int | None = None
    """The last event it wants; None: the result."""
    is_whole: bool = False
    """Whether it gets everything in one answer, at the end."""
    behind: bool = False


class Event(NamedTuple):
    """One numbered event; `start` counts the bytes of output before it."""

    seq: int
    header: Header
    payload: bytes
    start: int | None


class Execution:
    """One run of code or a command."""

    def __init__(self, request: RunRequest) -> None:
        self.request = request
        self.id = request.id
        kept, has_tail = request.output_bytes, request.output_keep == "ends"
        self.output = {name: HeadTail(kept, has_tail=has_tail) for name in ("stdout", "stderr")}
        self.display_bytes = 0
        self.notes: list[str] = []
        self.stdin: Stdin | None = None
        self.finished = False
        self.seq = 0
        self.kept_bytes = 0
        self._events: list[Event] = []
        self._dropped_seq = 0
        self._written = 0
        self._listeners: list[Listener] = []
        self._pacer: Stream | None = None

    def write(self, kind: str, data: bytes) -> None:
        """Record output."""
        self.output[kind].add(data)
        if self.request.stream:
            self._emit({"kind": kind}, data, self._written)
        if self._pacer is not None:
            self._pacer.credit -= len(data) + EVENT_COST
        self._written += len(data)

    def pace_by(self, stream: Stream) -> None:
        """Make output wait for the reader of that stream, where the request is paced."""
        if self.request.paced and self.request.stream:
            self._pacer = stream

    def may_read(self, resume: Callable[[], None]) -> bool:
        """Return whether more output may be read; if not, `resume` is called when it may."""
        if self._pacer is None or self._pacer.credit > 0:
            return True
        self._pacer.on_credit = resume
        return False

    def display(self, kind: str, payload: bytes) -> None:
        """Record a display; past the bound it is dropped, and the result has a note."""
        self.display_bytes += len(payload)
        if self.display_bytes > MAX_DISPLAY_BYTES:
            note = f"More was displayed than {MAX_DISPLAY_BYTES >> 20} MiB: the rest was dropped."
            if note not in self.notes:
                self.notes.append(note)
            return
        self._emit({"kind": "display", "display": kind}, payload, None)

    def finish(self, fields: dict[str, Any]) -> None:
        """Build the result from the fields of its run, send it and answer every listener."""
        stdout, stderr = self.output["stdout"], self.output["stderr"]
        body = {
            "exec": self.id,
            "kind": self.request.kind,
            "kernel": self.request.kernel if self.request.kind == "cell" else None,
            "stdout_bytes": stdout.total,
            "stderr_bytes": stderr.total,
            "stdout_chars": stdout.characters,
            "stderr_chars": stderr.characters,
            "truncated": stdout.truncated or stderr.truncated,
            **fields,
            "notes": [*self.notes, *fields.get("notes", ())][:32],
        }
        if self.request.whole:
            body = {name: value for name, value in body.items() if name not in USUAL or value != USUAL[name]}
        parts = [_result_json(body), stdout.kept(), stderr.kept()]
        self.finished = True
        self.output.clear()
        # The record may be kept for long, and its code is not needed any more.
        self.request = self.request.without_content()
        self._emit({"kind": "result", "parts": [len(part) for part in parts]}, b"".join(parts), None)

    def attach(self, stream: Stream, after: int = 0, *, follow: bool = True) -> None:
        """Send every event after `after`, then live ones with `follow`, and answer the stream at the end."""
        if after >= self.seq and (self.finished or not follow):
            stream.reply()
            return
        last = None if follow else self.seq
        self._catch_up(self._listen(Listener(stream, after, self._position_after(after), last=last)))

    def attach_whole(self, stream: Stream) -> None:
        """Answer the stream once, at the end, with everything; call it before the first event."""
        self._listen(Listener(stream, 0, 0, is_whole=True))

    def _listen(self, listener: Listener) -> Listener:
        self._listeners.append(listener)
        listener.stream.on_close = lambda: self._detach(listener)
        return listener

    def _position_after(self, seq: int) -> int:
        """Return the output position of a listener at `seq`; dropped output counts as missed."""
        if seq < self._dropped_seq:
            return 0
        for event in self._events[bisect_right(self._events, seq, key=attrgetter("seq")) :]:
            if event.start is not None:
                return event.start
        return self._written

    def _detach(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
        if self.stdin is not None and self.stdin.stream is listener.stream:
            self.stdin.close()
        if self._pacer is listener.stream:
            resume, self._pacer = self._pacer.on_credit, None
            if resume is not None:
                resume()

    def _emit(self, header: Header, payload: bytes, start: int | None) -> None:
        self.seq += 1
        event = Event(self.seq, header, payload, start)
        self._events.append(event)
        self.kept_bytes += len(payload) + EVENT_COST
        for listener in list(self._listeners):
            if not listener.behind:
                self._send(listener, event)
        # After sending: a listener that keeps up misses nothing.
        if self.kept_bytes > MAX_EVENT_BYTES:
            self._drop()

    def _send(self, listener: Listener, event: Event) -> None:
        if listener.is_whole:
            self._send_whole(listener, event)
            return
        stream = listener.stream
        if stream.connection.backlog >= BUSY_BACKLOG:
            listener.behind = True
            stream.connection.on_drained.add(lambda: self._catch_up(listener))
            return
        header = {"seq": event.seq, **event.header}
        if event.start is not None:
            if event.start > listener.position:
                header["skipped"] = event.start - listener.position
            listener.position = event.start + len(event.payload)
        listener.seq = event.seq
        stream.event(header, event.payload)
        if event.header["kind"] == "result" or (listener.last is not None and event.seq >= listener.last):
            self._listeners.remove(listener)
            stream.reply()

    def _send_whole(self, listener: Listener, event: Event) -> None:
        """Put everything into one answer; above the bound, fall back to event by event."""
        stream = listener.stream
        # At once, not at the end: above the bound for kept events the oldest are dropped, once they have been sent.
        if self.kept_bytes > CHUNK or stream.connection.backlog >= BUSY_BACKLOG:
            listener.is_whole = False
            self._catch_up(listener)
            return
        if event.header["kind"] != "result":
            return
        self._listeners.remove(listener)
        header, payload = {"seq": event.seq, **event.header}, event.payload
        if shown := self._events[:-1]:
            header["displays"] = [one.header["display"] for one in shown]
            header["parts"] = [*header["parts"], *(len(one.payload) for one in shown)]
            payload = b"".join((payload, *(one.payload for one in shown)))
        stream.reply(header, payload)

    def _catch_up(self, listener: Listener) -> None:
        listener.behind = False
        at = bisect_right(self._events, listener.seq, key=attrgetter("seq"))
        for event in self._events[at:]:
            if listener.behind or listener.stream.closed:
                return
            self._send(listener, event)

    def _drop(self) -> None:
        """Drop the oldest output, then if needed the oldest displays; a quarter at a time."""
        goal = MAX_EVENT_BYTES - MAX_EVENT_BYTES // 4
        for is_output in (True, False):
            kept: list[Event] = []
            for event in self._events:
                droppable = event.start is not None if is_output else event.header["kind"] == "display"
                if droppable and self.kept_bytes > goal:
                    self.kept_bytes -= len(event.payload) + EVENT_COST
                    self._dropped_seq = max(self._dropped_seq, event.seq)
                else:
                    kept.append(event)
            self._events = kept


def _result_json(body: dict[str, Any]) -> bytes:
    # Escaped to ASCII: names of files and errors may hold surrogates, which UTF-8 decoders reject.
    text = json.dumps(body).encode()
    for name in ("files_changed", "collected"):
        while len(text) > MAX_RESULT_JSON and body.get(name):
            body[name] = body[name][: len(body[name]) // 2]
            body[f"{name}_complete"] = False
            text = json.dumps(body).encode()
    return text
