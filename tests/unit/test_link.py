"""Our end of the wire, against the real agent."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.guest.agent_client import running_agent
from unit.guest.agent_workspace import AgentWorkspace
from warren.core.agent.client import AgentClient
from warren.core.agent.connection import MAX_ALL_QUEUED
from warren.core.agent.streams import Unread
from warren.domain.errors import Conflict, InvalidRequest, NotFound, SandboxLost
from warren.domain.values import Cause, Display, Event, ExecKind, ExecRequest, State, new_id
from warren.engines.unix_channel import connect
from warren.guest.wire.frames import WINDOW
from warren.guest.wire.run_request import encode_run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture(scope="module")
def here() -> Iterator[AgentWorkspace]:
    with running_agent() as agent:
        yield AgentWorkspace(agent)


def request(code: str, **fields: Any) -> ExecRequest:
    return ExecRequest(id=new_id("exe"), code=code, **fields)


def test_a_cell_runs_and_its_result_is_whole(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        assert agent.hello.sandbox_id == "sbx_00000000"
        seen: list[Event] = []
        result = await agent.run(request("print('out')\n6 * 7"), on_event=seen.append)
        assert (result.cause, result.exit_code, result.state, result.ok) == (Cause.EXITED, 0, State.KEPT, True)
        assert result.stdout == b"out\n"
        assert result.displays == (Display({"text/plain": "42"}, {}, is_result=True),)
        assert [event.kind for event in seen] == ["stdout", "display", "result"]
        assert [event.seq for event in seen] == [1, 2, 3]
        assert seen[-1].result == result

    here.do(story)


def test_variables_stay_and_errors_are_values(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        await agent.run(request("x = 5"))
        result = await agent.run(request("1/0"))
        assert result.cause is Cause.ERROR
        assert result.error is not None
        assert result.error["name"] == "ZeroDivisionError"
        assert (await agent.run(request("print(x)"))).stdout == b"5\n"

    here.do(story)


def test_standard_input_is_bytes_of_any_size_or_a_stream(here: AgentWorkspace) -> None:
    count = ExecKind.SHELL

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b"x" * 200_000

    async def story(agent: AgentClient) -> None:
        for stdin, size in ((b"", 0), (b"abc", 3), (bytes(WINDOW), WINDOW), (bytes(WINDOW * 2 + 1), WINDOW * 2 + 1)):
            result = await agent.run(request("wc -c", kind=count), stdin=stdin)
            assert result.stdout.split() == [str(size).encode()]
        result = await agent.run(request("wc -c", kind=count), stdin=pieces())
        assert result.stdout.split() == [b"6000000"]

    here.do(story)


def test_a_source_that_fails_fails_the_call(here: AgentWorkspace) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise ValueError("the source is broken")

    async def story(agent: AgentClient) -> None:
        with pytest.raises(ValueError, match="source is broken"):
            await agent.run(request("cat", kind=ExecKind.SHELL), stdin=broken())
        assert (await agent.run(request("echo fine", kind=ExecKind.SHELL))).stdout == b"fine\n"

    here.do(story)


def test_a_program_that_ends_early_does_not_wait_for_its_input(here: AgentWorkspace) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"y" * 100_000

    async def story(agent: AgentClient) -> None:
        result = await agent.run(request("head -c 1 | wc -c", kind=ExecKind.SHELL), stdin=endless())
        assert result.stdout.split() == [b"1"]

    here.do(story)


def test_events_are_streamed_as_they_happen(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        running = request("echo first; read line; echo got $line", kind=ExecKind.SHELL)
        go = anyio.Event()

        async def typed() -> AsyncIterator[bytes]:
            await go.wait()
            yield b"it\n"

        kinds = []
        async with contextlib.aclosing(agent.stream(running, typed())) as events:
            async for event in events:
                kinds.append((event.kind, event.data))
                go.set()
        assert kinds[:2] == [("stdout", b"first\n"), ("stdout", b"got it\n")]
        assert kinds[-1][0] == "result"

    here.do(story)


def test_a_cancelled_call_runs_on_and_is_found_again(here: AgentWorkspace) -> None:
    os.mkfifo(here.path("gate"))

    async def story(agent: AgentClient) -> None:
        running = request("echo started; cat gate", kind=ExecKind.SHELL)
        with anyio.CancelScope() as scope:
            await agent.run(running, on_event=lambda _event: scope.cancel())
        assert scope.cancelled_caught

        async with AgentClient(await connect(here.agent.path)) as second:
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


def test_readers_that_do_not_read_are_dropped_and_the_link_stays(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        shown = request("'d' * 3_900_000")
        assert len((await agent.run(shown)).displays[0].data["text/plain"]) > 3_900_000
        unread = [await agent.request("attach", {"exec": shown.id}) for _ in range(40)]
        with anyio.fail_after(60):
            while not all(stream.answered for stream in unread):  # noqa: ASYNC110 - there is no event for all of them
                await anyio.sleep(0.01)
        assert agent.lost is None
        assert agent.queued <= MAX_ALL_QUEUED
        dropped = 0
        for stream in unread:
            try:
                await stream.answer()
            except Conflict:
                dropped += 1
        assert 0 < dropped < 40
        assert (await agent.run(request("print(1)"))).stdout == b"1\n"

    here.do(story)


def test_however_much_is_under_way_there_is_room_for_a_kill(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        running = request("echo on; exec sleep 1000", kind=ExecKind.SHELL)
        causes: list[Cause] = []
        begun = anyio.Event()

        async def run() -> None:
            causes.append((await agent.run(running, on_event=lambda _event: begun.set())).cause)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await begun.wait()
            with pytest.raises(Conflict, match="under way"):
                await _attach_for_ever(agent, running.id)
            await agent.kill(running.id)
        assert causes == [Cause.KILLED]

    here.do(story)


async def _attach_for_ever(agent: AgentClient, exec_id: str) -> None:
    while True:
        await agent.request("attach", {"exec": exec_id})


def test_connections_with_unread_events_share_one_bound(here: AgentWorkspace) -> None:
    async def ignore(agent: AgentClient, code: str) -> None:
        asked = request(code, kind=ExecKind.SCRIPT)
        stream = await agent.request("run", encode_run(asked), asked.code.encode())
        await here.until(lambda: stream.answered)

    async def tell() -> None:
        unread = Unread(4 << 20)
        async with (
            AgentClient(await connect(here.agent.path), unread) as noisy,
            AgentClient(await connect(here.agent.path), unread) as quiet,
        ):
            await ignore(noisy, "for _ in range(100): print('x' * 50_000)")
            assert 4 << 20 < noisy.queued < 6 << 20, "output is kept until there is too much, and then the result"
            await ignore(quiet, "print('x' * 200_000)")
            assert quiet.queued > 400_000, "of the output of one that holds little nothing is dropped"
            assert unread.size == noisy.queued + quiet.queued
        assert unread.size == 0

    anyio.run(tell)


def test_a_reader_dropped_by_its_own_result_harms_no_other(here: AgentWorkspace) -> None:
    async def tell() -> None:
        async with AgentClient(await connect(here.agent.path), Unread(1 << 19)) as agent:
            asked = request("print('x' * 5_000_000)", kind=ExecKind.SCRIPT)
            stream = await agent.request("run", encode_run(asked), asked.code.encode())
            await here.until(lambda: stream.answered)
            with pytest.raises(Conflict, match="follow it again"):
                await stream.answer()
            assert agent.lost is None
            assert agent.queued == 0
            assert (await agent.run(request("print(1)"))).stdout == b"1\n"

    anyio.run(tell)


def test_interrupt_and_kill_end_a_call(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        for end, cause in ((agent.interrupt, Cause.INTERRUPTED), (agent.kill, Cause.KILLED)):
            running = request("echo on; exec sleep 1000", kind=ExecKind.SHELL)
            async with anyio.create_task_group() as tasks, contextlib.aclosing(agent.stream(running)) as events:
                async for event in events:
                    if event.kind == "stdout":
                        tasks.start_soon(end, running.id)
                    if event.result is not None:
                        assert event.result.cause is cause

    here.do(story)


def test_errors_come_back_as_their_classes(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        with pytest.raises(NotFound):
            await agent.interrupt("exe_unknown0")
        with pytest.raises(InvalidRequest):
            await agent.call("no.such.operation")
        twice = request("1")
        await agent.run(twice)
        with pytest.raises(Conflict):
            await agent.run(twice)

    here.do(story)


def test_kernels_are_made_listed_forked_and_ended(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        await agent.create_kernel("other")
        await agent.run(request("y = 7", kernel="other"))
        await agent.fork_kernel("other", "copy")
        assert (await agent.run(request("print(y)", kernel="copy"))).stdout == b"7\n"
        assert {"other", "copy"} <= {kernel.name for kernel in await agent.kernels()}
        await agent.restart_kernel("other")
        assert (await agent.run(request("y", kernel="other"))).cause is Cause.ERROR
        for name in ("other", "copy"):
            await agent.delete_kernel(name)

    here.do(story)


def test_a_terminal_takes_typing_and_tells_its_exit_code(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        terminal = await agent.terminal("t", argv=("sh",), cols=100, rows=30)
        await terminal.resize(120, 40)
        await terminal.send(b"stty size; exit 3\n")
        shown = bytearray()
        while data := await terminal.receive():
            shown += data
        assert b"40 120" in shown
        assert await terminal.exit_code() == 3

    here.do(story)


def test_a_terminal_is_joined_again_by_its_name_and_closed(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        first = await agent.terminal("joined", argv=("bash", "-c", "echo once; exec sleep 1000"))
        while b"once" not in await first.receive():
            """What a shell says before is of no interest."""
        await first.aclose()
        again = await agent.attach_terminal("joined")
        assert b"once" in await again.receive()
        await agent.close_terminal("joined")
        assert await again.exit_code() == -1

    here.do(story)


def test_what_is_configured_holds_for_what_starts_later(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        await agent.configure(env={"CONFIGURED": "yes"}, limits={"pids": 99})
        result = await agent.run(request("echo $CONFIGURED", kind=ExecKind.SHELL))
        assert result.stdout == b"yes\n"
        with pytest.raises(InvalidRequest, match="limits"):
            await agent.configure(limits={"pids": -1})

    here.do(story)


def test_many_calls_at_once_each_get_their_own_answer(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        answers: dict[int, bytes] = {}

        async def ask(number: int) -> None:
            result = await agent.run(request(f"echo {number}", kind=ExecKind.SHELL))
            answers[number] = result.stdout

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(ask, number)
        assert answers == {number: b"%d\n" % number for number in range(40)}

    here.do(story)


def test_a_ping_is_answered(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        await agent.ping()
        await agent.ping()

    here.do(story)


def test_the_bodys_own_exception_comes_out_as_it_is(here: AgentWorkspace) -> None:
    async def story(agent: AgentClient) -> None:
        await agent.stat("nothing-of-that-name")

    with pytest.raises(NotFound):
        here.do(story)


def test_a_connection_can_live_in_a_foreign_task_group(here: AgentWorkspace) -> None:
    async def tell() -> None:
        async with anyio.create_task_group() as tasks:
            agent = await AgentClient.open(await connect(here.agent.path), tasks)
            await agent.stat(".")
            await agent.aclose()
            with pytest.raises(SandboxLost):
                await agent.stat(".")

    anyio.run(tell)


def test_a_link_that_is_cancelled_goes_away_quietly(here: AgentWorkspace) -> None:
    async def tell() -> None:
        with anyio.CancelScope() as scope:
            async with AgentClient(await connect(here.agent.path)) as agent:
                await agent.stat(".")
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert agent.lost is not None

    anyio.run(tell)


def test_a_call_that_waits_is_cancelled_with_its_link(here: AgentWorkspace) -> None:
    async def tell() -> None:
        with anyio.CancelScope() as scope:
            async with AgentClient(await connect(here.agent.path)) as agent, anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(agent.run, request("exec sleep 60", kind=ExecKind.SHELL))
                await anyio.wait_all_tasks_blocked()
                await agent.ping()
                scope.cancel()
        assert scope.cancelled_caught

    anyio.run(tell)


def test_a_call_that_begins_after_its_link_was_cancelled_is_cancelled_too(here: AgentWorkspace) -> None:
    async def tell() -> None:
        with anyio.CancelScope() as scope:
            async with AgentClient(await connect(here.agent.path)) as agent, anyio.create_task_group() as tasks:
                scope.cancel()
                with anyio.CancelScope(shield=True):
                    lost = await agent.wait_lost()
                tasks.start_soon(agent.run, request("1"))
        assert scope.cancelled_caught
        assert "closed on this side" in str(lost)

    anyio.run(tell)


def test_several_tasks_may_send_on_one_stream(here: AgentWorkspace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def count() -> int:
            connection, _ = listener.accept()
            total = 0
            with connection:
                while data := connection.recv(1 << 16):
                    total += len(data)
            return total

        async def story(agent: AgentClient) -> None:
            stream = await agent.connect_port(port)
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
