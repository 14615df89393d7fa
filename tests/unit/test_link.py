"""Our end of the wire, against the real agent and against ones that lie."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.guest.agent_client import running_agent
from unit.guest.linked import Place
from warren.core.link import Link
from warren.core.link_connection import MAX_OPENED
from warren.domain import Cause, Display, Event, ExecKind, ExecRequest, State, new_id
from warren.engines.unix_channel import UnixChannel, connect
from warren.errors import Conflict, InvalidRequest, NotFound, SandboxLost, TooLarge, Unsupported
from warren.guest.wire import CHUNK, PROTOCOL_VERSION, WINDOW, Decoder, Header, encode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

HELLO: Header = {"t": "hello", "version": PROTOCOL_VERSION, "sandbox": "sbx_00000000", "agent": "x", "executions": []}


@pytest.fixture(scope="module")
def here() -> Iterator[Place]:
    with running_agent() as agent:
        yield Place(agent)


def request(code: str, **fields: Any) -> ExecRequest:
    return ExecRequest(id=new_id("exe"), code=code, **fields)


def test_a_cell_runs_and_its_result_is_whole(here: Place) -> None:
    async def story(link: Link) -> None:
        assert link.hello.sandbox_id == "sbx_00000000"
        seen: list[Event] = []
        result = await link.run(request("print('out')\n6 * 7"), on_event=seen.append)
        assert (result.cause, result.exit_code, result.state, result.ok) == (Cause.EXITED, 0, State.KEPT, True)
        assert result.stdout == b"out\n"
        assert result.displays == (Display({"text/plain": "42"}, {}, is_result=True),)
        assert [event.kind for event in seen] == ["stdout", "display", "result"]
        assert [event.seq for event in seen] == [1, 2, 3]
        assert seen[-1].result == result

    here.do(story)


def test_variables_stay_and_errors_are_values(here: Place) -> None:
    async def story(link: Link) -> None:
        await link.run(request("x = 5"))
        result = await link.run(request("1/0"))
        assert result.cause is Cause.ERROR
        assert result.error is not None
        assert result.error["name"] == "ZeroDivisionError"
        assert (await link.run(request("print(x)"))).stdout == b"5\n"

    here.do(story)


def test_standard_input_is_bytes_of_any_size_or_a_stream(here: Place) -> None:
    count = ExecKind.SHELL

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b"x" * 200_000

    async def story(link: Link) -> None:
        for stdin, size in ((b"", 0), (b"abc", 3), (bytes(WINDOW), WINDOW), (bytes(WINDOW * 2 + 1), WINDOW * 2 + 1)):
            result = await link.run(request("wc -c", kind=count), stdin=stdin)
            assert result.stdout.split() == [str(size).encode()]
        result = await link.run(request("wc -c", kind=count), stdin=pieces())
        assert result.stdout.split() == [b"6000000"]

    here.do(story)


def test_a_source_that_fails_fails_the_call(here: Place) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise ValueError("the source is broken")

    async def story(link: Link) -> None:
        with pytest.raises(ValueError, match="source is broken"):
            await link.run(request("cat", kind=ExecKind.SHELL), stdin=broken())
        assert (await link.run(request("echo fine", kind=ExecKind.SHELL))).stdout == b"fine\n"

    here.do(story)


def test_a_program_that_ends_early_does_not_wait_for_its_input(here: Place) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"y" * 100_000

    async def story(link: Link) -> None:
        result = await link.run(request("head -c 1 | wc -c", kind=ExecKind.SHELL), stdin=endless())
        assert result.stdout.split() == [b"1"]

    here.do(story)


def test_events_are_streamed_as_they_happen(here: Place) -> None:
    async def story(link: Link) -> None:
        running = request("echo first; read line; echo got $line", kind=ExecKind.SHELL)
        go = anyio.Event()

        async def typed() -> AsyncIterator[bytes]:
            await go.wait()
            yield b"it\n"

        kinds = []
        async with contextlib.aclosing(link.stream(running, typed())) as events:
            async for event in events:
                kinds.append((event.kind, event.data))
                go.set()
        assert kinds[:2] == [("stdout", b"first\n"), ("stdout", b"got it\n")]
        assert kinds[-1][0] == "result"

    here.do(story)


def test_a_cancelled_call_runs_on_and_is_found_again(here: Place) -> None:
    os.mkfifo(here.path("gate"))

    async def story(link: Link) -> None:
        running = request("echo started; cat gate", kind=ExecKind.SHELL)
        with anyio.CancelScope() as scope:
            await link.run(running, on_event=lambda _event: scope.cancel())
        assert scope.cancelled_caught

        async with Link(await connect(here.agent.path)) as second:
            known = {one.id: one for one in second.hello.executions}[running.id]
            assert known.running
            fd = os.open(here.path("gate"), os.O_WRONLY)
            os.write(fd, b"later\n")
            os.close(fd)
            events = [event async for event in second.attach(running.id, after=known.seq)]
            result = events[-1].result
            assert result is not None
            assert result.stdout == b"started\nlater\n"
            await second.ack(running.id)
            with pytest.raises(NotFound):
                await anext(second.attach(running.id))

    here.do(story)


def test_interrupt_and_kill_end_a_call(here: Place) -> None:
    async def story(link: Link) -> None:
        for end, cause in ((link.interrupt, Cause.INTERRUPTED), (link.kill, Cause.KILLED)):
            running = request("echo on; exec sleep 1000", kind=ExecKind.SHELL)
            async with anyio.create_task_group() as tasks, contextlib.aclosing(link.stream(running)) as events:
                async for event in events:
                    if event.kind == "stdout":
                        tasks.start_soon(end, running.id)
                    if event.result is not None:
                        assert event.result.cause is cause

    here.do(story)


def test_errors_come_back_as_their_classes(here: Place) -> None:
    async def story(link: Link) -> None:
        with pytest.raises(NotFound):
            await link.interrupt("exe_unknown0")
        with pytest.raises(InvalidRequest):
            await link.call("no.such.operation")
        twice = request("1")
        await link.run(twice)
        with pytest.raises(Conflict):
            await link.run(twice)

    here.do(story)


def test_kernels_are_made_listed_forked_and_ended(here: Place) -> None:
    async def story(link: Link) -> None:
        await link.create_kernel("other")
        await link.run(request("y = 7", kernel="other"))
        await link.fork_kernel("other", "copy")
        assert (await link.run(request("print(y)", kernel="copy"))).stdout == b"7\n"
        assert {"other", "copy"} <= {kernel.name for kernel in await link.kernels()}
        await link.restart_kernel("other")
        assert (await link.run(request("y", kernel="other"))).cause is Cause.ERROR
        for name in ("other", "copy"):
            await link.delete_kernel(name)

    here.do(story)


def test_a_terminal_takes_typing_and_tells_its_exit_code(here: Place) -> None:
    async def story(link: Link) -> None:
        terminal = await link.terminal("t", argv=("sh",), cols=100, rows=30)
        await terminal.resize(120, 40)
        await terminal.send(b"stty size; exit 3\n")
        shown = bytearray()
        while data := await terminal.receive():
            shown += data
        assert b"40 120" in shown
        assert await terminal.exit_code() == 3

    here.do(story)


def test_many_calls_at_once_each_get_their_own_answer(here: Place) -> None:
    async def story(link: Link) -> None:
        answers: dict[int, bytes] = {}

        async def ask(number: int) -> None:
            result = await link.run(request(f"echo {number}", kind=ExecKind.SHELL))
            answers[number] = result.stdout

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(ask, number)
        assert answers == {number: b"%d\n" % number for number in range(40)}

    here.do(story)


def test_a_ping_is_answered(here: Place) -> None:
    async def story(link: Link) -> None:
        await link.ping()
        await link.ping()

    here.do(story)


def test_the_bodys_own_exception_comes_out_as_it_is(here: Place) -> None:
    async def story(link: Link) -> None:
        await link.stat("nothing-of-that-name")

    with pytest.raises(NotFound):
        here.do(story)


def test_a_link_can_live_in_a_task_group_of_somebody_elses(here: Place) -> None:
    async def tell() -> None:
        async with anyio.create_task_group() as tasks:
            link = await Link.open(await connect(here.agent.path), tasks)
            await link.stat(".")
            await link.aclose()
            with pytest.raises(SandboxLost):
                await link.stat(".")

    anyio.run(tell)


class Liar:
    """The agent's end of a socket pair, held by a test that sends what it likes."""

    def __init__(self, sock: socket.socket) -> None:
        self.channel = UnixChannel(sock)
        self._decoder = Decoder()
        self._frames: list[tuple[Header, bytes]] = []

    async def send(self, header: Header, payload: bytes = b"") -> None:
        await self.channel.send(b"".join(encode(header, payload)))

    async def receive(self) -> tuple[Header, bytes]:
        while not self._frames:
            data = await self.channel.receive()
            if not data:
                return {"t": "gone"}, b""
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)


def lie(story: Callable[[Link, Liar], Awaitable[None]], hello: Header | bytes = HELLO) -> None:
    async def tell() -> None:
        ours, theirs = socket.socketpair()
        liar = Liar(theirs)
        with anyio.fail_after(20):
            await liar.channel.send(hello if isinstance(hello, bytes) else b"".join(encode(hello)))
            try:
                async with Link(UnixChannel(ours)) as link:
                    await story(link, liar)
            finally:
                await liar.channel.aclose()

    anyio.run(tell)


async def nothing(_link: Link, _liar: Liar) -> None:
    pytest.fail("this hello should not have been accepted")


@pytest.mark.parametrize(
    "hello",
    [
        {**HELLO, "version": 99},
        {**HELLO, "version": "1"},
        {**HELLO, "sandbox": 5},
        {**HELLO, "executions": [{"exec": "exe_1", "state": "dreaming", "seq": 1}]},
        {**HELLO, "executions": "many"},
        {"t": "ok", "id": 1},
        b"\xff" * 64,
        b"GET / HTTP/1.1\r\n\r\n" * 10,
    ],
)
def test_a_wrong_hello_is_a_lost_sandbox(hello: Header | bytes) -> None:
    with pytest.raises(SandboxLost):
        lie(nothing, hello)


def test_another_version_is_named() -> None:
    with pytest.raises(SandboxLost, match="version 99"):
        lie(nothing, {**HELLO, "version": 99})


def result_frame(exec_id: str, **fields: Any) -> tuple[Header, bytes]:
    body = {
        "exec": exec_id,
        "exit_code": 0,
        "cause": "exited",
        "state": "kept",
        "stdout_bytes": 3,
        "stderr_bytes": 0,
        "truncated": False,
        "duration_ms": 1.5,
        "cpu_ms": 1,
    } | fields
    blob = json.dumps({key: value for key, value in body.items() if value != "ABSENT"}).encode()
    return {"t": "event", "seq": 1, "kind": "result", "parts": [len(blob), 3, 0]}, blob + b"out"


async def answered(link: Link, liar: Liar, change: Callable[[str], tuple[Header, bytes]]) -> Any:
    """Run something that is answered with one frame of the test's making."""
    asked = request("1")
    outcome: list[Any] = []

    async def run() -> None:
        try:
            outcome.append(await link.run(asked))
        except Exception as error:  # noqa: BLE001 - the outcome is what is looked at
            outcome.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        sent, _ = await liar.receive()
        header, payload = change(asked.id)
        await liar.send({"id": sent["id"], **header}, payload)
    return outcome[0]


def test_a_plain_result_is_accepted() -> None:
    async def story(link: Link, liar: Liar) -> None:
        result = await answered(link, liar, result_frame)
        assert (result.stdout, result.duration_ms, result.cause) == (b"out", 1.5, Cause.EXITED)

    lie(story)


@pytest.mark.parametrize(
    "fields",
    [
        {"exec": "exe_somebody_elses"},
        {"exit_code": "0"},
        {"exit_code": True},
        {"exit_code": 1 << 70},
        {"cause": "bored"},
        {"cause": ["exited"]},
        {"state": None},
        {"stdout_bytes": -1},
        {"truncated": 1},
        {"duration_ms": "1"},
        {"duration_ms": -1},
        {"duration_ms": 1e300},
        {"error": "boom"},
        {"error": {"name": 5}},
        {"files_changed": [{"path": "f", "action": "eaten", "size": 1}]},
        {"files_changed": {"path": "f"}},
        {"hint": 7},
        {"notes": ["fine", 8]},
        {"limit": "512M"},
        {"cpu_ms": "ABSENT"},
    ],
)
def test_a_mistyped_result_is_a_lost_sandbox(fields: dict[str, Any]) -> None:
    async def story(link: Link, liar: Liar) -> None:
        outcome = await answered(link, liar, lambda exec_id: result_frame(exec_id, **fields))
        assert isinstance(outcome, SandboxLost)
        assert link.broke_protocol
        with pytest.raises(SandboxLost):
            await link.stat(".")
        assert (await liar.receive())[0]["t"] == "gone"

    lie(story)


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        ({"t": "event", "seq": 1, "kind": "result", "parts": [2, 0, 0]}, b"{}"),
        ({"t": "event", "seq": 1, "kind": "result", "parts": [900, 0, 0]}, b"{}"),
        ({"t": "event", "seq": 1, "kind": "result", "parts": [-2, 4, 0]}, b"{}"),
        ({"t": "event", "seq": 1, "kind": "result", "parts": "all"}, b"{}"),
        ({"t": "event", "seq": 1, "kind": "result", "parts": [7, 0, 0]}, b"[" * 7),
        ({"t": "event", "seq": 1, "kind": "result"}, b""),
        ({"t": "event", "seq": "1", "kind": "stdout"}, b"x"),
        ({"t": "event", "kind": "stdout"}, b"x"),
        ({"t": "event", "seq": 1, "kind": "gossip"}, b"x"),
        ({"t": "event", "seq": 1, "kind": "stdout", "skipped": -5}, b"x"),
        ({"t": "event", "seq": 1, "kind": "display", "display": "display"}, b"[]"),
        ({"t": "event", "seq": 1, "kind": "display", "display": "display"}, b'{"data": {"text/plain": 5}}'),
        ({"t": "event", "seq": 1, "kind": "display", "display": "display"}, b'{"data": {"a": NaN}}'),
        ({"t": "event", "seq": 1, "kind": "display", "display": "display"}, b"[" * 100_000),
        ({"t": "ok"}, b""),
        ({"t": "err", "code": 5, "message": "x"}, b""),
        ({"t": "credit", "n": -1}, b""),
        ({"t": "credit", "n": True}, b""),
        ({"t": "data"}, bytes(CHUNK + 1)),
        ({"t": "gossip"}, b""),
        ({"t": "data", "id": 77}, b"x"),
        ({"t": "data", "id": 78}, b"x"),
        ({"t": "open", "id": 3, "op": "tunnel"}, b""),
        ({"t": "open", "id": 2, "op": "shell"}, b""),
        ({"t": "open", "id": 2, "op": "tunnel", "listener": "l", "host": "h", "port": "80"}, b""),
    ],
)
def test_a_frame_no_agent_sends_is_a_lost_sandbox(header: Header, payload: bytes) -> None:
    async def story(link: Link, liar: Liar) -> None:
        outcome = await answered(link, liar, lambda _exec_id: (header, payload))
        assert isinstance(outcome, SandboxLost)
        assert link.broke_protocol

    lie(story)


def test_data_beyond_the_window_is_a_protocol_error() -> None:
    async def story(link: Link, liar: Liar) -> None:
        stream = await link.request("fs.read", {"path": "f"})
        await liar.receive()
        for _ in range(WINDOW // CHUNK + 2):
            await liar.send({"t": "data", "id": stream.id}, bytes(CHUNK))
        await link.wait_lost()
        assert link.broke_protocol

    lie(story)


def failing(code: str) -> Callable[[str], tuple[Header, bytes]]:
    return lambda _exec_id: ({"t": "err", "code": code, "message": "sorry"}, b"")


def test_an_unknown_error_code_is_a_lost_sandbox_but_not_a_broken_protocol() -> None:
    async def story(link: Link, liar: Liar) -> None:
        for code, kind in (
            ("unsupported", Unsupported),
            ("too_large", TooLarge),
            ("forbidden", SandboxLost),
            ("__class__", SandboxLost),
        ):
            outcome = await answered(link, liar, failing(code))
            assert type(outcome) is kind
            assert "sorry" in str(outcome)
        assert not link.broke_protocol

    lie(story)


def test_output_that_nobody_reads_is_dropped_and_counted_and_the_rest_goes_on() -> None:
    async def story(link: Link, liar: Liar) -> None:
        asked = request("1")
        async with contextlib.aclosing(link.stream(asked)) as events:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anext, events)
                sent, _ = await liar.receive()
                await liar.send({"t": "event", "id": sent["id"], "seq": 1, "kind": "stdout"}, b"first")
            for number in range(40):
                header = {"t": "event", "id": sent["id"], "seq": number + 2, "kind": "stdout"}
                await liar.send(header, bytes(1 << 20))
            await liar.send({"t": "ping"})
            while (await liar.receive())[0]["t"] != "pong":
                pass
            header, payload = result_frame(asked.id)
            rest = [await anext(events) for _ in range(8)]
            await liar.send({"t": "event", "id": sent["id"], "seq": 50, "kind": "stderr"}, b"last")
            await liar.send({"id": sent["id"], **header, "seq": 51}, payload)
            rest += [event async for event in events]
        total = sum(len(event.data) + event.skipped for event in rest)
        assert total == (40 << 20) + 4
        assert sum(len(event.data) for event in rest) < 12 << 20
        assert rest[-1].result is not None

    lie(story)


def test_tunnels_beyond_the_bound_are_refused_not_fatal() -> None:
    async def story(link: Link, liar: Liar) -> None:
        async def hold(_stream: object) -> None:
            await anyio.sleep_forever()

        link.on_tunnel = hold
        for number in range(MAX_OPENED + 1):
            header = {"t": "open", "id": 2 * number + 2, "op": "tunnel", "listener": "l", "host": "h", "port": 1}
            await liar.send(header)
        assert await liar.receive() == ({"t": "cancel", "id": 2 * MAX_OPENED + 2}, b"")

    lie(story)


def test_an_agent_that_goes_away_ends_every_call() -> None:
    async def story(link: Link, liar: Liar) -> None:
        outcomes: list[str] = []

        async def call() -> None:
            try:
                await link.run(request("1"))
            except SandboxLost as error:
                outcomes.append(str(error))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(call)
            for _ in range(5):
                await liar.receive()
            await liar.channel.aclose()
        assert len(outcomes) == 5
        assert "gone" in str(await link.wait_lost())
        assert not link.broke_protocol

    lie(story)


def test_an_agent_that_takes_nothing_does_not_block_a_cancelled_upload_for_ever() -> None:
    async def story(link: Link, liar: Liar) -> None:
        with anyio.move_on_after(0.2) as scope:
            await link.write("f", bytes(64 << 20))
        assert scope.cancelled_caught
        kinds = set()
        while "cancel" not in kinds:
            kinds.add((await liar.receive())[0]["t"])
        assert kinds == {"req", "data", "cancel"}

    lie(story)


def test_a_stream_given_up_is_cancelled_at_the_agent_and_its_late_frames_are_ignored() -> None:
    async def story(link: Link, liar: Liar) -> None:
        with anyio.move_on_after(0.05):
            await link.stat(".")
        sent, _ = await liar.receive()
        assert await liar.receive() == ({"t": "cancel", "id": sent["id"]}, b"")
        await liar.send({"t": "ok", "id": sent["id"], "entry": 5})
        await liar.send({"t": "data", "id": sent["id"]}, b"late")
        await liar.send({"t": "ping"})
        assert (await liar.receive())[0]["t"] == "pong"
        assert link.lost is None

    lie(story)


def test_a_link_that_is_cancelled_goes_away_quietly(here: Place) -> None:
    async def tell() -> None:
        with anyio.move_on_after(0.1) as scope:
            async with Link(await connect(here.agent.path)) as link:
                await link.stat(".")
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert link.lost is not None

    anyio.run(tell)


def test_a_call_that_waits_is_cancelled_with_its_link(here: Place) -> None:
    async def tell() -> None:
        with anyio.move_on_after(0.2) as scope:
            async with Link(await connect(here.agent.path)) as link, anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(link.run, request("import time; time.sleep(60)", kind=ExecKind.SCRIPT))
        assert scope.cancelled_caught

    anyio.run(tell)


def test_several_tasks_may_send_on_one_stream(here: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def count() -> int:
            connection, _ = listener.accept()
            total = 0
            with connection:
                while data := connection.recv(1 << 16):
                    total += len(data)
            return total

        async def story(link: Link) -> None:
            stream = await link.connect_port(port)
            totals: list[int] = []

            async def counted() -> None:
                totals.append(await anyio.to_thread.run_sync(count))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(counted)
                async with anyio.create_task_group() as senders:
                    for _ in range(4):
                        senders.start_soon(stream.send, bytes(3 << 20))
                stream.send_eof()
            assert totals == [12 << 20]
            await stream.aclose()

        here.do(story)


def test_one_task_sees_only_one_write_for_a_call_and_no_cancel_after_its_result() -> None:
    async def story(link: Link, liar: Liar) -> None:
        for _ in range(3):
            await answered(link, liar, result_frame)
        await liar.send({"t": "ping"})
        assert (await liar.receive())[0]["t"] == "pong"

    lie(story)
