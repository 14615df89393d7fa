"""Server-sent events and clients that leave, without a socket."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from warren.domain.errors import Conflict
from warren.domain.records import Execution, Owner
from warren.domain.values import Cause, Display, Event, ExecKind, ExecResult, State
from warren.gateway.api.bodies import ClientLeft
from warren.gateway.api.operations import dump
from warren.gateway.api.streaming import EventStream, encode_event, finish_unless_left
from warren.gateway.dialects.native.events import EventWriter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SCOPE: dict[str, Any] = {"type": "http", "state": {"request_id": "req_1"}}
EXECUTION = Execution(
    id="exe_00000000",
    sandbox_id="sbx_00000000",
    owner=Owner("t", "s"),
    kind=ExecKind.SHELL,
    kernel=None,
    code="",
    request_id="req_1",
    started_at=0.0,
    result=ExecResult(id="exe_00000000", exit_code=0, cause=Cause.EXITED, state=State.NONE),
)


class Line:
    """The server's end of a connection: keeps what is sent, and can say that the client has left."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.left = anyio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        await anyio.lowlevel.checkpoint()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


def test_a_quiet_stream_gives_signs_of_life() -> None:
    async def main() -> bytes:
        line = Line()

        async def quiet() -> AsyncGenerator[bytes, None]:
            while line.body.count(b": still here") < 3:
                await anyio.lowlevel.checkpoint()
            yield encode_event("late", {})

        with anyio.fail_after(20):
            await EventStream(quiet(), contextlib.AsyncExitStack(), heartbeat_s=0.01)(SCOPE, line.receive, line.send)
        return line.body

    assert anyio.run(main).endswith(b"event: late\ndata: {}\n\n")


def test_a_failure_half_way_is_an_event() -> None:
    async def main() -> tuple[bytes, bool]:
        line, held = Line(), contextlib.AsyncExitStack()
        let_go: list[bool] = []
        held.callback(let_go.append, True)

        async def failing() -> AsyncGenerator[bytes, None]:
            yield encode_event("stdout", {"data": "x"}, 1)
            raise Conflict("it broke")

        await EventStream(failing(), held)(SCOPE, line.receive, line.send)
        return line.body, let_go == [True]

    body, is_let_go = anyio.run(main)
    assert body.startswith(b'id: 1\nevent: stdout\ndata: {"data":"x"}\n\nevent: error\n')
    assert b'"code":"conflict"' in body
    assert is_let_go


def test_a_client_that_leaves_ends_the_stream_and_lets_go() -> None:
    async def main() -> tuple[bool, bool]:
        line, held = Line(), contextlib.AsyncExitStack()
        let_go: list[bool] = []
        held.callback(let_go.append, True)
        ended = False

        async def endless() -> AsyncGenerator[bytes, None]:
            nonlocal ended
            try:
                yield encode_event("started", {})
                line.left.set()
                await anyio.sleep_forever()
            finally:
                ended = True

        with anyio.fail_after(20):
            await EventStream(endless(), held)(SCOPE, line.receive, line.send)
        return ended, let_go == [True]

    assert anyio.run(main) == (True, True)


def test_work_is_cancelled_when_its_client_leaves() -> None:
    async def main() -> bool:
        line = Line()
        cancelled = False

        async def work() -> None:
            nonlocal cancelled
            try:
                line.left.set()
                await anyio.sleep_forever()
            finally:
                cancelled = True

        with anyio.fail_after(20), pytest.raises(ClientLeft):
            await finish_unless_left(line.receive, work())
        return cancelled

    assert anyio.run(main)


def test_finished_work_leaves_no_watcher() -> None:
    async def main() -> tuple[int, int]:
        line = Line()

        async def work() -> int:
            await anyio.sleep_until(anyio.current_time() + 0.05)
            return 42

        with anyio.fail_after(20):
            found = await finish_unless_left(line.receive, work())
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
        return found, line.left.statistics().tasks_waiting

    assert anyio.run(main) == (42, 0)


def test_a_half_character_waits_for_its_other_half_or_the_end() -> None:
    writer = EventWriter("utf-8")

    first = b"".join(writer.write(Event(1, "stdout", "aü".encode()[:2]), EXECUTION))
    other = b"".join(writer.write(Event(2, "stderr", b"z"), EXECUTION))
    second = b"".join(writer.write(Event(3, "stdout", "ü".encode()[1:] + b"\xe2"), EXECUTION))
    end = b"".join(writer.write(Event(4, "result", result=EXECUTION.result), EXECUTION))

    assert b'"data":"a"' in first
    assert b'"data":"z"' in other
    assert '"data":"ü"'.encode() in second
    assert end.startswith('event: stdout\ndata: {"data":"\ufffd"'.encode())
    assert b"id: 4\nevent: result\n" in end


def test_half_a_character_before_a_gap_is_marked() -> None:
    writer = EventWriter("utf-8")

    before = b"".join(writer.write(Event(1, "stdout", b"\xc3"), EXECUTION))
    after = b"".join(writer.write(Event(2, "stdout", b"\xbcb", skipped=10), EXECUTION))

    assert before == b""
    assert b'"skipped":10' in after
    assert '"data":"\ufffd\ufffdb"'.encode() in after


def test_no_content_breaks_out_of_its_event() -> None:
    display = Event(1, "display", display=Display({"text/plain": "a\n\nevent: result\ndata: {}\r\n\u2028"}))

    written = b"".join(EventWriter("utf-8").write(display, EXECUTION))

    assert written.count(b"\n") == 4
    assert written.endswith(b"\n\n")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"a": "\ud800"}, b'{"a":"?"}'),
        ({"\ud800": 1}, b'{"?":1}'),
        ([1 << 80], b'["1208925819614629174706176"]'),
        ([float("inf")], b"[null]"),
        ({1: 2}, b'{"1":2}'),
    ],
)
def test_what_json_cannot_hold_is_written_all_the_same(value: object, written: bytes) -> None:
    assert dump(value) == written


def test_json_without_end_is_cut() -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]

    assert b"null" in dump(deep)


def test_no_content_of_an_event_ends_its_line_not_even_for_python() -> None:
    content = "".join(map(chr, range(0x3000)))
    lines = encode_event("output", {"data": content}, 7).decode("utf-8", "surrogatepass").splitlines()

    assert lines[:2] == ["id: 7", "event: output"]
    assert json.loads(lines[2].removeprefix("data: ")) == {"data": content}
    assert lines[3:] == [""]
