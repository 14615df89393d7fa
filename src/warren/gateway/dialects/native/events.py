"""The events of an execution as server-sent events."""

from __future__ import annotations

import base64
import codecs
from typing import TYPE_CHECKING, Any

from warren.gateway.api.streaming import encode_event
from warren.gateway.dialects.native.translate import render_display, render_execution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.domain.records import Execution
    from warren.domain.values import Event
    from warren.gateway.dialects.native.schemas_answers import EncodingName

EVENTS = (
    "`started` (`execution_id`, `sandbox_id`), `stdout` and `stderr` (`data`, and `skipped`: bytes that were dropped "
    "before it because they were not read), `display` (`data`, `metadata`, `is_result`), `result` (the execution, as "
    "without streaming), which is the last, or `error` (a problem) when the stream cannot go on; with "
    "`follow=false`, of an execution that goes on, the last is `caught_up`. `id` numbers them; "
    "`GET …/executions/{execution_id}/events` with `Last-Event-ID` resumes. When it is quiet for long "
    "(`serve.heartbeat_s`), a comment says that the connection lives. Text is decoded across events; where a resumed "
    "stream begins in the middle of a character, U+FFFD stands for it: ask for `encoding: base64` where that matters."
)


class EventWriter:
    """Writes the events of one execution; keeps the half character at the end of one for the next."""

    def __init__(self, encoding: EncodingName, after: int = 0) -> None:
        self._encoding = encoding
        self._after = after
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}

    def start(self, execution: Execution) -> bytes:
        """Write the first event, which names the execution."""
        named = {"execution_id": execution.id, "sandbox_id": execution.sandbox_id}
        return encode_event("started", named, self._after)

    def write(self, event: Event, execution: Execution) -> Iterator[bytes]:
        """Write one event; the result of `execution` when it is that."""
        if event.kind in self._decoders:
            text = self._text(event.kind, event.data, is_broken=event.skipped > 0)
            if text or event.skipped:
                yield encode_event(event.kind, {"data": text, "skipped": event.skipped}, event.seq)
        elif event.display is not None:
            yield encode_event("display", render_display(event.display), event.seq)
        elif event.result is not None:
            yield from self._rest()
            yield encode_event("result", render_execution(execution, self._encoding), event.seq)

    def catch_up(self) -> bytes:
        """Write that no more has happened by now."""
        return encode_event("caught_up", {})

    def _text(self, kind: str, data: bytes, *, is_broken: bool) -> str:
        if self._encoding == "base64":
            return base64.b64encode(data).decode()
        decoder = self._decoders[kind]
        before = decoder.decode(b"", final=True) if is_broken else ""
        return before + decoder.decode(data)

    def _rest(self) -> Iterator[bytes]:
        for kind, decoder in self._decoders.items():
            text = decoder.decode(b"", final=True)
            if text:
                rest: dict[str, Any] = {"data": text, "skipped": 0}
                yield encode_event(kind, rest)
