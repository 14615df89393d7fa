"""The events of an execution, from the bytes of a stream of server-sent events. No I/O."""

from __future__ import annotations

import base64
import codecs
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from warren.domain.errors import InvalidRequest
from warren.sdk.failures import build_stream_error, explain_unread
from warren.sdk.results import Display, Result, build_result
from warren.sdk.values import build

if TYPE_CHECKING:
    from collections.abc import Iterator

QUIET_S = 45.0
"""A stream has a heartbeat every 15 seconds: one that is silent for three times as long is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The first event: which execution this is."""

    execution_id: str
    sandbox_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Output of a program."""

    stream: str
    """stdout or stderr."""
    text: str
    """Decoded across events: half a character waits for its other half."""
    data: bytes
    """The same, exactly."""
    skipped: int = 0
    """Bytes that were dropped before it because they were not read in time."""


Event: TypeAlias = Started | Output | Display | Result
"""`Started` comes first, and `Result` last."""


class RawEvent(NamedTuple):
    """One server-sent event."""

    name: str
    data: str
    id: str | None


class EventParser:
    """Cuts bytes into server-sent events.

    Not by `str.splitlines`, which also cuts where JSON has U+2028 in a string.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, data: bytes) -> Iterator[RawEvent]:
        """Yield the events that are whole now."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest = []
        self._rest.append(rest)
        for line in lines:
            found = self._take(line.removesuffix(b"\r").decode("utf-8", "replace"))
            if found is not None:
                yield found

    def _take(self, line: str) -> RawEvent | None:
        if not line:
            event = RawEvent(self._name, "\n".join(self._data), self._id) if self._data else None
            self._name, self._data, self._id = "", [], None
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = value
        return None


class EventReader:
    """Builds the events of one execution from several connections, one after the other."""

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}
        self.seen = 0
        """The number of the last event: a stream is resumed after it."""
        self.execution_id: str | None = None
        self.result: Result | None = None
        self.is_caught_up = False
        """Whether all events so far have come, for streams with `follow=False`."""

    @property
    def is_done(self) -> bool:
        """Whether the stream has ended."""
        return self.is_caught_up or self.result is not None

    def read(self, raw: RawEvent) -> Event | None:
        """Read an event; None for one of no meaning here. Raises the error that ended the stream."""
        try:
            body = json.loads(raw.data)
            event = self._build(raw.name, body)
        except (ValueError, KeyError, TypeError) as error:
            raise explain_unread("an event") from error
        if raw.id is not None and raw.id.isdigit():
            self.seen = int(raw.id)
        return event

    def _build(self, name: str, body: Any) -> Event | None:
        if name in self._decoders:
            data, skipped = base64.b64decode(body["data"]), int(body["skipped"])
            decoder = self._decoders[name]
            before = decoder.decode(b"", final=True) if skipped else ""
            return Output(stream=name, text=before + decoder.decode(data), data=data, skipped=skipped)
        if name == "started":
            is_first = self.execution_id is None
            self.execution_id = str(body["execution_id"])
            return Started(execution_id=self.execution_id, sandbox_id=str(body["sandbox_id"])) if is_first else None
        if name == "display":
            return build(Display, body)
        if name == "result":
            self.result = build_result(body)
            return self.result
        if name == "caught_up":
            self.is_caught_up = True
        if name == "error":
            raise build_stream_error(body)
        return None


def must_name(execution_id: str | None) -> str:
    """Return an execution's id, once its stream has said it. Raises InvalidRequest before."""
    if execution_id is None:
        raise InvalidRequest("the stream has not begun: take its first event before")
    return execution_id
