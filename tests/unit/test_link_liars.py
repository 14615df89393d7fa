"""The link against agents that lie: every byte that arrives is hostile, and a lie costs that sandbox only."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from warren.core.agent.client import AgentClient
from warren.core.agent.connection import MAX_OPENED
from warren.domain.errors import SandboxLost, TooLarge, Unsupported
from warren.domain.values import Cause, ExecRequest, new_id
from warren.engines.unix_channel import UnixChannel
from warren.guest.wire.frames import CHUNK, PROTOCOL_VERSION, WINDOW, Decoder, Header, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HELLO: Header = {"t": "hello", "version": PROTOCOL_VERSION, "sandbox": "sbx_00000000", "agent": "x", "executions": []}


def request(code: str, **fields: Any) -> ExecRequest:
    return ExecRequest(id=new_id("exe"), code=code, **fields)


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


def lie(story: Callable[[AgentClient, Liar], Awaitable[None]], hello: Header | bytes = HELLO) -> None:
    async def tell() -> None:
        ours, theirs = socket.socketpair()
        liar = Liar(theirs)
        with anyio.fail_after(60):
            await liar.channel.send(hello if isinstance(hello, bytes) else b"".join(encode(hello)))
            try:
                async with AgentClient(UnixChannel(ours)) as agent:
                    await story(agent, liar)
            finally:
                await liar.channel.aclose()

    anyio.run(tell)


async def nothing(_agent: AgentClient, _liar: Liar) -> None:
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


async def answered(agent: AgentClient, liar: Liar, change: Callable[[str], tuple[Header, bytes]]) -> Any:
    """Run something that is answered with one frame of the test's making."""
    asked = request("1")
    outcome: list[Any] = []

    async def run() -> None:
        try:
            outcome.append(await agent.run(asked))
        except Exception as error:  # noqa: BLE001 - the outcome is what is looked at
            outcome.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        sent, _ = await liar.receive()
        header, payload = change(asked.id)
        await liar.send({"id": sent["id"], **header}, payload)
    return outcome[0]


def test_a_plain_result_is_accepted() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        result = await answered(agent, liar, result_frame)
        assert (result.stdout, result.duration_ms, result.cause) == (b"out", 1.5, Cause.EXITED)

    lie(story)


SHOWN = b'{"data": {"text/plain": "2"}}'
DEEP = b'{"data": {}, "metadata": {"x": ' + b"[" * 40 + b"]" * 40 + b"}}"
MANY = b'{"data": {}, "metadata": {"x": [' + b"[], " * 10_000 + b"[]]}}"


def whole_frame(exec_id: str, displays: object, *shown: bytes) -> tuple[Header, bytes]:
    header, payload = result_frame(exec_id)
    parts = [*header["parts"], *map(len, shown)]
    return {**header, "t": "ok", "parts": parts, "displays": displays}, payload + b"".join(shown)


def test_an_answer_that_holds_everything_is_accepted() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        result = await answered(agent, liar, lambda exec_id: whole_frame(exec_id, ["display", "result"], SHOWN, SHOWN))
        assert result.stdout == b"out"
        assert [(one.data["text/plain"], one.is_result) for one in result.displays] == [("2", False), ("2", True)]

    lie(story)


@pytest.mark.parametrize(
    ("displays", "shown"),
    [
        (["result"], ()),
        ([], (SHOWN,)),
        ("result", (SHOWN,)),
        (None, (SHOWN,)),
        (["gossip"], (SHOWN,)),
        ([["result"]], (SHOWN,)),
        (["result"], (b"[]",)),
        (["result"], (b'{"data": {"text/plain": 5}}',)),
    ],
)
def test_an_answer_with_displays_that_are_none_is_a_lost_sandbox(displays: object, shown: tuple[bytes, ...]) -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        outcome = await answered(agent, liar, lambda exec_id: whole_frame(exec_id, displays, *shown))
        assert isinstance(outcome, SandboxLost)
        assert agent.broke_protocol

    lie(story)


@pytest.mark.parametrize(
    "fields",
    [
        {"exec": "exe_of_another"},
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
    async def story(agent: AgentClient, liar: Liar) -> None:
        outcome = await answered(agent, liar, lambda exec_id: result_frame(exec_id, **fields))
        assert isinstance(outcome, SandboxLost)
        assert agent.broke_protocol
        with pytest.raises(SandboxLost):
            await agent.stat(".")
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
        ({"t": "event", "seq": 1, "kind": "display", "display": "display"}, DEEP),
        ({"t": "event", "seq": 1, "kind": "display", "display": "display"}, MANY),
        ({"t": "ok"}, b""),
        ({"t": "ok", "seq": 1, "kind": "stdout"}, b"x"),
        ({"t": "ok", "seq": 1, "kind": "result", "parts": [2, 0, 0]}, b"{}"),
        ({"t": "ok", "kind": "result"}, b""),
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
    async def story(agent: AgentClient, liar: Liar) -> None:
        outcome = await answered(agent, liar, lambda _exec_id: (header, payload))
        assert isinstance(outcome, SandboxLost)
        assert agent.broke_protocol

    lie(story)


def test_data_beyond_the_window_is_a_protocol_error() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        stream = await agent.request("fs.read", {"path": "f"})
        await liar.receive()
        for _ in range(WINDOW // CHUNK + 1):
            await liar.send({"t": "data", "id": stream.id}, bytes(CHUNK))
        await agent.wait_lost()
        assert agent.broke_protocol

    lie(story)


def failing(code: str) -> Callable[[str], tuple[Header, bytes]]:
    return lambda _exec_id: ({"t": "err", "code": code, "message": "sorry"}, b"")


def test_an_unknown_error_code_is_a_lost_sandbox_but_not_a_broken_protocol() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        for code, kind in (
            ("unsupported", Unsupported),
            ("too_large", TooLarge),
            ("forbidden", SandboxLost),
            ("__class__", SandboxLost),
        ):
            outcome = await answered(agent, liar, failing(code))
            assert type(outcome) is kind
            assert "sorry" in str(outcome)
        assert not agent.broke_protocol

    lie(story)


def test_unread_output_is_dropped_and_counted_and_the_rest_goes_on() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        asked = request("1")
        async with contextlib.aclosing(agent.stream(asked)) as events:
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
    async def story(agent: AgentClient, liar: Liar) -> None:
        async def hold(_stream: object) -> None:
            await anyio.sleep_forever()

        agent.on_tunnel["l"] = hold
        for number in range(MAX_OPENED + 1):
            header = {"t": "open", "id": 2 * number + 2, "op": "tunnel", "listener": "l", "host": "h", "port": 1}
            await liar.send(header)
        assert await liar.receive() == ({"t": "cancel", "id": 2 * MAX_OPENED + 2}, b"")

    lie(story)


def test_an_agent_that_goes_away_ends_every_call() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        outcomes: list[str] = []

        async def call() -> None:
            try:
                await agent.run(request("1"))
            except SandboxLost as error:
                outcomes.append(str(error))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(call)
            for _ in range(5):
                await liar.receive()
            await liar.channel.aclose()
        assert len(outcomes) == 5
        assert "gone" in str(await agent.wait_lost())
        assert not agent.broke_protocol

    lie(story)


def test_an_agent_that_takes_nothing_does_not_block_a_cancelled_upload_for_ever() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        with anyio.move_on_after(0.2) as scope:
            await agent.write("f", bytes(64 << 20))
        assert scope.cancelled_caught
        kinds = set()
        while "cancel" not in kinds:
            kinds.add((await liar.receive())[0]["t"])
        assert kinds == {"req", "data", "cancel"}

    lie(story)


def test_a_stream_given_up_is_cancelled_at_the_agent_and_its_late_frames_are_ignored() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        with anyio.move_on_after(0.05):
            await agent.stat(".")
        sent, _ = await liar.receive()
        assert await liar.receive() == ({"t": "cancel", "id": sent["id"]}, b"")
        await liar.send({"t": "ok", "id": sent["id"], "entry": 5})
        await liar.send({"t": "data", "id": sent["id"]}, b"late")
        await liar.send({"t": "ping"})
        assert (await liar.receive())[0]["t"] == "pong"
        assert agent.lost is None

    lie(story)


def test_one_task_sees_only_one_write_for_a_call_and_no_cancel_after_its_result() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        for _ in range(3):
            await answered(agent, liar, result_frame)
        await liar.send({"t": "ping"})
        assert (await liar.receive())[0]["t"] == "pong"

    lie(story)


@pytest.mark.parametrize(
    "first",
    [
        {"t": "data"},
        {"t": "eof"},
        {"t": "ok", "exit_code": 0},
        {"t": "event", "kind": "stdout"},
        {"t": "event", "kind": "attached"},
        {"t": "event", "kind": "attached", "created": 1, "scrollback": 0},
        {"t": "event", "kind": "attached", "created": True, "scrollback": -1},
    ],
)
def test_a_terminal_that_is_neither_attached_nor_refused_is_a_lie(first: Header) -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        async def answer() -> None:
            header, _ = await liar.receive()
            await liar.send({**first, "id": header["id"]})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            with pytest.raises(SandboxLost):
                await agent.terminal("t")
        assert agent.broke_protocol

    lie(story)


def test_more_of_a_terminal_than_its_window_is_a_lie() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        async def answer() -> None:
            header, _ = await liar.receive()
            assert header["window"] == 128 << 10
            await liar.send({"t": "event", "id": header["id"], "kind": "attached", "created": True, "scrollback": 0})
            await liar.send({"t": "data", "id": header["id"]}, b"x" * (128 << 10))
            await liar.send({"t": "data", "id": header["id"]}, b"x")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            await agent.terminal("t")
        await agent.wait_lost()
        assert agent.broke_protocol

    lie(story)


@pytest.mark.parametrize("terminals", ["many", [1], [{"name": "a"}], [{"name": 5, "program": "x"}]])
def test_a_list_of_terminals_that_is_none_is_a_lie(terminals: object) -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        async def answer() -> None:
            header, _ = await liar.receive()
            await liar.send({"t": "ok", "id": header["id"], "terminals": terminals})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            with pytest.raises(SandboxLost):
                await agent.terminals()

    lie(story)
