"""Executions that are followed, written to, left alone in the background, or left by their callers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.estate import ANN
from unit.core.workshop import Workshop, command, first_output, wait_for_file
from warren.core.executions.executions import NewExecution
from warren.core.executions.following import OWN
from warren.domain.errors import Conflict, QuotaExceeded
from warren.domain.values import Cause, Display, Event

if TYPE_CHECKING:
    from unit.core.workshop import Tell


def test_a_followed_execution_streams_its_events_and_takes_input(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        new = command("read a; read b; echo $a-$b; cat", stdin=b"first\n", stdin_open=True)
        seen: list[Event] = []
        async with await shop.executions.begin(ANN, sandbox.id, new) as running:
            assert (await shop.executions.get(ANN, sandbox.id, running.execution.id)).result is None
            await shop.executions.write_stdin(ANN, sandbox.id, running.execution.id, b"second\n")
            async for event in running.events():
                seen.append(event)
                if len(seen) == 1:
                    await shop.executions.write_stdin(ANN, sandbox.id, running.execution.id, b"rest")
                    await shop.executions.close_stdin(ANN, sandbox.id, running.execution.id)
        assert [(event.kind, event.data) for event in seen[:-1]] == [("stdout", b"first-second\n"), ("stdout", b"rest")]
        assert [event.seq for event in seen] == [1, 2, 3]
        assert seen[-1].result is not None
        assert seen[-1].result.ok
        with pytest.raises(Conflict):
            await shop.executions.write_stdin(ANN, sandbox.id, running.execution.id, b"late")

    tell(story)


def test_unread_input_does_not_pile_up(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        execution = await shop.executions.start(ANN, sandbox.id, command("exec sleep 100", stdin_open=True))
        written = 0
        with anyio.move_on_after(1.0):
            while True:
                await shop.executions.write_stdin(ANN, sandbox.id, execution.id, bytes(1 << 20))
                written += 1
        assert written < 12

        async with anyio.create_task_group() as tasks:
            errors: list[Exception] = []

            async def write() -> None:
                try:
                    # More than there is room for anywhere, whatever was taken before.
                    await shop.executions.write_stdin(ANN, sandbox.id, execution.id, bytes(12 << 20))
                except Conflict as error:
                    errors.append(error)

            tasks.start_soon(write)
            await anyio.wait_all_tasks_blocked()
            await shop.executions.kill(ANN, sandbox.id, execution.id)
        assert len(errors) == 1

    tell(story)


def test_input_is_taken_only_where_it_was_left_open(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        execution = await shop.executions.start(ANN, sandbox.id, command("exec sleep 100"))
        with pytest.raises(Conflict, match="takes no input"):
            await shop.executions.write_stdin(ANN, sandbox.id, execution.id, b"x")
        await shop.executions.interrupt(ANN, sandbox.id, execution.id)
        ended = await shop.finished(execution.id)
        assert ended.result is not None
        assert ended.result.cause is Cause.INTERRUPTED
        await shop.executions.interrupt(ANN, sandbox.id, execution.id)
        await shop.executions.kill(ANN, sandbox.id, execution.id)
        assert await shop.audited("execution.interrupt") == ["ok"]
        assert await shop.audited("execution.kill") == []

    tell(story)


def test_a_background_execution_is_listed_followed_and_replayed(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        new = command("echo one; read go; echo two >&2", stdin_open=True)
        execution = await shop.executions.start(ANN, sandbox.id, new)
        assert execution.background
        assert execution.result is None
        assert (await first_output(shop, sandbox.id, execution.id)).data == b"one\n"
        page = await shop.executions.list(ANN, sandbox.id)
        assert [(one.id, one.result) for one in page.items] == [(execution.id, None)]

        await shop.executions.write_stdin(ANN, sandbox.id, execution.id, b"go\n")
        live = [event async for event in await shop.executions.events(ANN, sandbox.id, execution.id)]
        assert [event.kind for event in live] == ["stdout", "stderr", "result"]
        await shop.finished(execution.id)
        again = [event async for event in await shop.executions.events(ANN, sandbox.id, execution.id, after=1)]
        assert again == live[1:]
        assert [event async for event in await shop.executions.events(ANN, sandbox.id, execution.id, after=3)] == []

        await shop.sandboxes.stop(ANN, sandbox.id)
        replayed = [event async for event in await shop.executions.events(ANN, sandbox.id, execution.id)]
        assert [(event.seq, event.kind, event.data) for event in replayed[:2]] == [
            (1, "stdout", b"one\n"),
            (2, "stderr", b"two\n"),
        ]
        assert replayed[-1].result == live[-1].result
        rest = [event async for event in await shop.executions.events(ANN, sandbox.id, execution.id, after=7)]
        assert [(event.seq, event.kind) for event in rest] == [(8, "result")]

    tell(story)


def test_a_foreground_execution_is_replayed_from_its_record(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        execution = await shop.executions.run(ANN, sandbox.id, NewExecution(code="print('x')\n40 + 2"))
        events = [event async for event in await shop.executions.events(ANN, sandbox.id, execution.id)]
        assert [event.kind for event in events] == ["stdout", "display", "result"]
        assert events[1].display == Display({"text/plain": "42"}, {}, is_result=True)
        assert events[2].result == execution.result

    tell(story)


def test_cancelling_a_caller_ends_the_execution_and_records_it(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        code = "trap 'echo bye; exit 7' INT; echo $$ > pid; while :; do sleep 0.01; done"
        scope = anyio.CancelScope()

        async def call() -> None:
            with scope:
                await shop.executions.run(ANN, sandbox.id, command(code, grace_s=5.0))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await wait_for_file(shop, sandbox.id, "pid")
            scope.cancel()
        (execution,) = (await shop.executions.list(ANN, sandbox.id)).items
        done = await shop.finished(execution.id)
        assert done.result is not None
        assert done.result.stdout == b"bye\n"
        assert "No caller waited" in done.result.notes[-1]
        assert len(await shop.finishes(execution.id)) == 1

    tell(story)


def test_one_that_ignores_the_interrupt_is_killed_when_its_follower_leaves(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        new = command("trap '' INT; echo on; while :; do sleep 0.01; done", grace_s=0.1)
        running = await shop.executions.begin(ANN, sandbox.id, new)
        async with running, contextlib.aclosing(running.events()) as events:
            assert (await anext(events)).data == b"on\n"
        done = await shop.finished(running.execution.id)
        assert done.result is not None
        assert done.result.cause is Cause.KILLED
        assert done.result.stdout == b"on\n"

    tell(story)


def test_a_background_execution_runs_on_when_its_follower_leaves(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        new = command("echo on; read go; echo done", stdin_open=True, background=True)
        running = await shop.executions.begin(ANN, sandbox.id, new)
        async with running, contextlib.aclosing(running.events()) as events:
            await anext(events)
        await shop.executions.write_stdin(ANN, sandbox.id, running.execution.id, b"go\n")
        done = await shop.finished(running.execution.id)
        assert done.result is not None
        assert done.result.stdout == b"on\ndone\n"

    tell(story)


def test_an_execution_that_two_follow_under_one_key_ends_with_the_second(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        new = command("echo on; exec sleep 100", idempotency_key="k")
        first = await shop.executions.begin(ANN, sandbox.id, new)
        second = await shop.executions.begin(ANN, sandbox.id, new)
        assert second.execution.id == first.execution.id
        first.release()
        assert (await first_output(shop, sandbox.id, second.execution.id)).data == b"on\n"
        assert not second.finished.is_set()
        second.release()
        done = await shop.finished(second.execution.id)
        assert done.result is not None
        assert done.result.cause is Cause.INTERRUPTED

    tell(story)


def test_an_owner_follows_a_bounded_number_and_ending_one_makes_room(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        execution = await shop.executions.start(ANN, sandbox.id, command("exec sleep 100"))
        followers = [await shop.executions.events(ANN, sandbox.id, execution.id) for _ in range(OWN)]
        with pytest.raises(QuotaExceeded, match="you follow"):
            await shop.executions.events(ANN, sandbox.id, execution.id)
        await followers[0].aclose()
        await followers[0].aclose()
        again = await shop.executions.events(ANN, sandbox.id, execution.id)
        with pytest.raises(QuotaExceeded):
            await shop.executions.events(ANN, sandbox.id, execution.id)
        await shop.executions.kill(ANN, sandbox.id, execution.id)
        async for event in again:
            assert event.kind == "result"
        await (await shop.executions.events(ANN, sandbox.id, execution.id)).aclose()
        for each in followers:
            await each.aclose()

    tell(story)
