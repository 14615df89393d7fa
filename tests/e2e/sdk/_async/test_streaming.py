from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import warren
from warren import AsyncClient, Output, Result, Retries, Started

if TYPE_CHECKING:
    from e2e.sdk.breaking import BreakingProxy
    from e2e.serving import RunningService
    from warren import AsyncSandbox

pytestmark = pytest.mark.anyio

COUNT = "import time\nfor number in range(40):\n    print(number, flush=True)\n    time.sleep(0.01)\n'end'"
WAIT = "import time\nprint('begun', flush=True)\ntime.sleep(100)"


async def test_events_come_while_it_runs_and_the_result_last(sandbox: AsyncSandbox) -> None:
    stream = sandbox.stream("print('a'); 'b'")

    events = [event async for event in stream]

    assert isinstance(events[0], Started)
    assert [event.text for event in events[1:-1]] == ["a\n", "'b'"]  # type: ignore[union-attr]  # outputs and displays
    assert isinstance(events[-1], Result)
    assert stream.result is events[-1]
    assert (events[-1].ok, events[-1].stdout, events[-1].value) == (True, "a\n", "'b'")
    assert stream.execution.id == events[0].execution_id == events[-1].execution_id


async def test_commands_are_followed_too(sandbox: AsyncSandbox) -> None:
    async with sandbox.stream(command="echo out; echo err >&2; exit 2") as stream:
        output = {event.stream: event.text async for event in stream if isinstance(event, Output)}

    assert output == {"stdout": "out\n", "stderr": "err\n"}
    assert stream.result is not None
    assert stream.result.exit_code == 2


async def test_characters_are_whole_however_they_are_written(sandbox: AsyncSandbox) -> None:
    code = (
        "import os, time\nfor byte in 'häß€🐇\\u2028'.encode():\n    os.write(1, bytes([byte]))\n    time.sleep(0.005)"
    )

    pieces = [event async for event in sandbox.stream(code) if isinstance(event, Output)]

    assert "".join(piece.text for piece in pieces) == "häß€🐇\u2028"
    assert "\ufffd" not in "".join(piece.text for piece in pieces)
    assert b"".join(piece.data for piece in pieces) == "häß€🐇\u2028".encode()


async def test_a_broken_connection_is_resumed_where_it_broke(
    service: RunningService, sandbox: AsyncSandbox, proxy: BreakingProxy
) -> None:
    seen: list[str] = []
    async with AsyncClient(proxy.url, service.key) as client:
        async for event in client.sandboxes.at(sandbox.id).stream(COUNT):
            if isinstance(event, Output):
                seen += event.text.split()
                # Several lines may come at once.
                if len(seen) >= (3, 9, 1000)[seen.count("cut")]:
                    proxy.cut()
                    seen.append("cut")

    assert [each for each in seen if each != "cut"] == [str(number) for number in range(40)]
    assert seen.count("cut") >= 1
    assert proxy.connections >= 2
    assert isinstance(event, Result)
    assert event.value == "'end'"


async def test_a_service_that_is_gone_for_good_ends_the_stream(
    service: RunningService, sandbox: AsyncSandbox, proxy: BreakingProxy
) -> None:
    retries = Retries(most=1, longest_s=0.1)
    async with AsyncClient(proxy.url, service.key, retries=retries) as client:
        stream = client.sandboxes.at(sandbox.id).stream(WAIT)
        async for event in stream:
            if isinstance(event, Output):
                break
        proxy.end()
        with pytest.raises(warren.ServiceUnreachable, match="warren serve"):
            await stream.wait()

    await sandbox.execution(stream.execution.id).kill()


async def test_a_loop_that_was_left_goes_on_where_it_was(sandbox: AsyncSandbox) -> None:
    stream = sandbox.stream(COUNT)
    seen = ""
    async for event in stream:
        if isinstance(event, Output):
            seen += event.text
            break
    async for event in stream:
        if isinstance(event, Output):
            seen += event.text

    assert seen.split() == [str(number) for number in range(40)]


async def test_leaving_the_loop_ends_what_ran(sandbox: AsyncSandbox) -> None:
    async with sandbox.stream(WAIT) as stream:
        async for event in stream:
            if isinstance(event, Output):
                break

    result = await stream.execution.wait()
    assert (result.ok, result.cause) == (False, "killed")


async def test_what_was_started_runs_on_and_is_followed_later(sandbox: AsyncSandbox) -> None:
    execution = await sandbox.start(COUNT)
    first = await sandbox.execution(execution.id).get()

    async for event in execution.events():
        if isinstance(event, Output):
            break
    result = await execution.wait()

    assert first.execution_id == execution.id
    assert result.stdout.split() == [str(number) for number in range(40)]
    assert (await execution.get(exact=True)).raw_stdout == result.raw_stdout


async def test_events_are_replayed_after_the_one_that_was_seen(sandbox: AsyncSandbox) -> None:
    execution = await sandbox.start(COUNT)
    await execution.wait()
    stream = execution.events()
    async for event in stream:
        if isinstance(event, Output):
            break

    rest = [event async for event in execution.events(after=stream.last_event_id) if isinstance(event, Output)]

    assert isinstance(event, Output)
    assert event.text + "".join(each.text for each in rest) == "".join(f"{number}\n" for number in range(40))


async def test_what_has_happened_by_now_is_had_without_following(sandbox: AsyncSandbox) -> None:
    execution = await sandbox.start(command="echo one; read line; echo two", stdin_open=True)
    async with execution.events() as live:
        async for event in live:
            if isinstance(event, Output):
                break
    stream = execution.events(follow=False)
    so_far = [event.text async for event in stream if isinstance(event, Output)]
    still = stream.result
    await execution.write("go\n", eof=True)
    await execution.wait()
    ended = execution.events(follow=False)

    assert (so_far, still) == (["one\n"], None)
    assert (await ended.wait()).stdout == "one\ntwo\n"


async def test_input_is_written_while_it_runs(sandbox: AsyncSandbox) -> None:
    execution = await sandbox.start(command="read line; echo got $line; cat", stdin_open=True)

    await execution.write("one\n")
    await execution.write(b"two\n", eof=True)

    assert (await execution.wait()).stdout == "got one\ntwo\n"
    other = await sandbox.start(command="cat", stdin_open=True)
    await other.close_stdin()
    assert (await other.wait()).ok


async def test_what_runs_is_interrupted_and_killed(sandbox: AsyncSandbox) -> None:
    one, other = await sandbox.start(WAIT), await sandbox.start(command="echo begun; sleep 100")
    for execution in (one, other):
        async for event in execution.events():
            if isinstance(event, Output):
                break

    await one.interrupt()
    await other.kill()

    assert (await one.wait()).cause in {"interrupted", "error"}
    assert (await other.wait()).cause == "killed"


async def test_a_sandbox_that_is_deleted_ends_its_streams(client: AsyncClient) -> None:
    sandbox = await client.sandboxes.create()
    stream = sandbox.stream(WAIT)
    async for event in stream:
        if isinstance(event, Output):
            break

    await sandbox.delete()

    assert (await stream.wait()).cause in {"lost", "killed"}
    with pytest.raises(warren.NotFound):
        await sandbox.refresh()
