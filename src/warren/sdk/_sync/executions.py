# Made from src/warren/sdk/_async/executions.py by `make sdk`: change that instead.
"""Executions in the background, and streams of their events."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from warren.domain.errors import Error, Overloaded
from warren.sdk.events import QUIET_S, EventParser, EventReader, must_name
from warren.sdk.failures import NotUnderstood, ServiceUnreachable
from warren.sdk.io_sync import shielded, sleep
from warren.sdk.request import Request, api
from warren.sdk.results import Result, build_result

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType
    from typing import Self

    from warren.sdk._sync.connection import Connection
    from warren.sdk.events import Event

_KILL_S = 10.0


class Stream:
    """The events of one execution: iterate over it, once. A broken connection is resumed where it broke.

    Leaving the loop early ends the execution, unless it was started in the background. Use it in `with`, so that this
    happens at the end of the block, and not some time later.
    """

    def __init__(
        self, connection: Connection, sandbox_id: str, begin: Request, *, ends_with_us: bool, follow: bool = True
    ) -> None:
        self._follower = Follower(connection, sandbox_id, begin, ends_with_us=ends_with_us, follow=follow)
        self._events: Generator[Event, None, None] | None = None

    @property
    def execution(self) -> Execution:
        """The execution, once the first event has come. Raises InvalidRequest before."""
        return self._follower.execution

    @property
    def result(self) -> Result | None:
        """How it ended, once the last event has come."""
        return self._follower.reader.result

    @property
    def last_event_id(self) -> int:
        """The number of the last event: `Execution.events(after=…)` goes on there."""
        return self._follower.reader.seen

    def __iter__(self) -> Generator[Event, None, None]:
        if self._events is None:
            self._events = self._follower.follow()
        return self._events

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop following it."""
        if self._events is not None:
            self._events.close()

    def wait(self) -> Result:
        """Read the rest of the events, and return the last. Raises Error."""
        for _ in self:
            pass
        if self.result is None:
            raise NotUnderstood("the stream was closed before its result")
        return self.result


class Follower:
    """Reads events over as many connections as needed.

    WHY not in the stream itself: the stream holds the generator, which would then hold itself, and the garbage
    collector would close what it left open, in any order.
    """

    def __init__(
        self, connection: Connection, sandbox_id: str, begin: Request, *, ends_with_us: bool, follow: bool
    ) -> None:
        self._connection = connection
        self._sandbox_id = sandbox_id
        self._next = begin
        self._ends_with_us = ends_with_us
        self._is_followed = follow
        self.reader = EventReader()

    @property
    def execution(self) -> Execution:
        """The execution. Raises InvalidRequest before its first event."""
        return Execution(self._connection, self._sandbox_id, must_name(self.reader.execution_id))

    def follow(self) -> Generator[Event, None, None]:
        """Yield every event. Raises Error."""
        reader, failures = self.reader, 0
        try:
            while not reader.is_done:
                before = reader.seen
                try:
                    with contextlib.closing(self._read()) as events:
                        for event in events:
                            yield event
                except (ServiceUnreachable, Overloaded):
                    # A service that stops answers "overloaded" too: its successor takes over what runs.
                    failures = 1 if reader.seen > before else failures + 1
                    if reader.execution_id is None or failures > self._connection.retries.most:
                        raise
                    sleep(self._connection.retries.back_off(failures))
                named = must_name(reader.execution_id)
                self._next = ask_for_events(self._sandbox_id, named, reader.seen, follow=self._is_followed)
        finally:
            if self._ends_with_us and reader.result is None and reader.execution_id is not None:
                with shielded():
                    with contextlib.suppress(Error):
                        self._connection.ask(self._kill())

    def _kill(self) -> Request:
        """Build the last request, with a short timeout."""
        parts = ("sandboxes", self._sandbox_id, "executions", must_name(self.reader.execution_id), "kill")
        return api("POST", *parts, repeatable=False, read_timeout_s=_KILL_S)

    def _read(self) -> Generator[Event, None, None]:
        parser = EventParser()
        with self._connection.open(self._next) as answer:
            for data in answer.iter_bytes():
                for raw in parser.feed(data):
                    event = self.reader.read(raw)
                    if event is not None:
                        yield event
        if self.reader.execution_id is None:
            raise NotUnderstood("the service sent no events: see whether a proxy stands before it")
        if not self.reader.is_done:
            raise ServiceUnreachable("the stream of events ended before the execution did: follow it again")


class Execution:
    """An execution in the background: it runs whether or not a client follows it."""

    def __init__(self, connection: Connection, sandbox_id: str, execution_id: str) -> None:
        self._connection = connection
        self.sandbox_id = sandbox_id
        """The sandbox it runs in."""
        self.id = execution_id
        """Its id, for `Sandbox.execution`."""
        self._parts = ("sandboxes", sandbox_id, "executions", execution_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r} in {self.sandbox_id!r})"

    def events(self, *, after: int = 0, follow: bool = True) -> Stream:
        """Replay its events after number `after`, then follow it. To stop following does not end it.

        With `follow=False` the stream ends after the events so far.
        """
        begin = ask_for_events(self.sandbox_id, self.id, after, follow=follow)
        return Stream(self._connection, self.sandbox_id, begin, ends_with_us=False, follow=follow)

    def wait(self) -> Result:
        """Wait for its end. Raises Error."""
        return self.events().wait()

    def get(self, *, exact: bool = False) -> Result:
        """Get its state, or how it ended. Raises Error."""
        params = {"encoding": "base64" if exact else None}
        return build_result(self._connection.ask_json(api("GET", *self._parts, params=params)))

    def write(self, data: bytes | str, *, eof: bool = False) -> None:
        """Write to its standard input, which `stdin_open=True` left open; `eof` closes that. Raises Error."""
        from warren.sdk.content import Content

        params = {"eof": eof or None}
        self._connection.ask(api("POST", *self._parts, "stdin", params=params, content=Content.of(data)))

    def close_stdin(self) -> None:
        """Close its standard input. Raises Error."""
        self.write(b"", eof=True)

    def interrupt(self) -> None:
        """Interrupt it, as Ctrl-C does. Raises Error."""
        self._connection.ask(api("POST", *self._parts, "interrupt", repeatable=True))

    def kill(self) -> None:
        """Kill it; a kernel is rolled back to the end of the cell before. Raises Error."""
        self._connection.ask(api("POST", *self._parts, "kill", repeatable=True))


def ask_for_events(sandbox_id: str, execution_id: str, after: int, *, follow: bool) -> Request:
    """Build the request for the events of an execution after one that was seen."""
    return api(
        "GET",
        "sandboxes",
        sandbox_id,
        "executions",
        execution_id,
        "events",
        params={"encoding": "base64", "follow": None if follow else "false"},
        headers={"Accept": "text/event-stream", "Last-Event-ID": str(after)},
        read_timeout_s=QUIET_S,
    )
