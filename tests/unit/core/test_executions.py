"""Executions as their callers see them: run, followed, in the background, written to, ended, and never lost."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.estate import ADMIN, ANN, BOB, EPHEMERAL, READER, wait_until
from unit.core.workshop import SHELL, Workshop, work
from warren.core.executions import NewExecution
from warren.domain import KIB, Cause, Display, Event, ExecKind, State
from warren.errors import Conflict, Forbidden, InvalidRequest, NotFound, QuotaExceeded, SandboxLost, TooLarge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from warren.records import Execution

    Story = Callable[[Workshop], Awaitable[None]]
    Tell = Callable[..., None]


@pytest.fixture
def tell(tmp_path: Path, images_dir: str) -> Tell:
    """Return what tells a story in a workshop, with choices of its policy."""

    def told(story: Story, **choices: object) -> None:
        work(str(tmp_path), images_dir, story, **choices)

    return told


def command(code: str, **fields: object) -> NewExecution:
    return dataclasses.replace(NewExecution(kind=SHELL, code=code), **fields)  # type: ignore[arg-type]


async def first_output(shop: Workshop, sandbox_id: str, execution_id: str) -> Event:
    """Wait until an execution has written something."""
    async with contextlib.aclosing(await shop.executions.events(ANN, sandbox_id, execution_id)) as events:
        return await anext(events)


def test_an_execution_returns_its_result_and_leaves_a_record_and_an_audit_entry(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        new = NewExecution(
            code="import os; print(os.environ['TOKEN'][:3]); open('f', 'w').write('x')", env={"TOKEN": "s3cret-value"}
        )
        execution = await shop.executions.run(ANN, sandbox.id, new)
        result = execution.result
        assert result is not None
        assert (result.cause, result.exit_code, result.stdout) == (Cause.EXITED, 0, b"s3c\n")
        kept = await shop.finished(execution.id)
        assert kept == execution
        assert await shop.executions.get(ANN, sandbox.id, execution.id) == execution

        (entry,) = await shop.finishes(execution.id)
        assert (entry.outcome, entry.subject, entry.request_id) == ("ok", "ann", "req_1")
        assert entry.details["cause"] == "exited"
        assert entry.details["exit_code"] == 0
        assert entry.details["files_changed"] == [{"path": "f", "action": "created", "size": 1}]
        assert "s3cret-value" not in repr(entry) + repr(kept)

    tell(story)


def test_what_is_kept_is_cut_and_what_is_answered_is_not(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        execution = await shop.executions.run(
            ANN, sandbox.id, NewExecution(code="print('a' * 5000 + 'z')\n'd' * 300_000#" + "c" * 2000)
        )
        assert execution.result is not None
        assert len(execution.result.stdout) == 5002
        assert len(execution.result.displays) == 1
        kept = await shop.finished(execution.id)
        assert kept.result is not None
        assert len(kept.code) < 1100
        assert kept.result.truncated
        assert b"bytes left out" in kept.result.stdout
        assert kept.result.stdout.endswith(b"z\n")
        assert kept.result.displays == ()
        assert kept.result.notes == ("1 of 1 displays were too large to be kept.",)
        (entry,) = await shop.finishes(execution.id)
        assert len(str(entry.details["stdout"])) < 150
        assert entry.details["stdout_bytes"] == 5002

    tell(story, output_bytes=1 * KIB, audit_output_bytes=100)


def test_one_that_fails_is_a_value_and_one_the_agent_refuses_is_an_error(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        assert (await shop.run(sandbox.id, "1/0")).cause is Cause.ERROR
        with pytest.raises(InvalidRequest, match="cwd"):
            await shop.executions.run(ANN, sandbox.id, command("true", cwd="../.."))
        refused = (await shop.executions.list(ANN, sandbox.id)).items[0]
        done = await shop.finished(refused.id)
        assert done.result is not None
        assert (done.result.cause, done.result.state) == (Cause.INTERRUPTED, State.NONE)
        assert "never ran" in str(done.result.hint)
        assert [entry.outcome for entry in await shop.finishes(refused.id)] == ["invalid_request"]

    tell(story)


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (NewExecution(code="x", kernel="../main"), InvalidRequest),
        (NewExecution(code="x", timeout_s=float("inf")), InvalidRequest),
        (NewExecution(code="x", timeout_s=float("nan")), InvalidRequest),
        (NewExecution(code="x", grace_s=-1.0), InvalidRequest),
        (NewExecution(code="\ud800"), InvalidRequest),
        (NewExecution(code="x" * (4 << 20)), TooLarge),
        (NewExecution(code="x", env={"A": "é" * 40_000}), TooLarge),
        (NewExecution(kind=ExecKind.ARGV, argv=("x" * 100_000,)), TooLarge),
    ],
)
def test_what_no_agent_could_take_is_refused_before_it_is_sent(tell: Tell, new: NewExecution, error: type) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        with pytest.raises(error):
            await shop.executions.run(ANN, sandbox.id, new)
        with pytest.raises(error):
            await shop.executions.begin(ANN, sandbox.id, new)
        assert (await shop.executions.list(ANN, sandbox.id)).total == 0
        assert (await shop.run(sandbox.id, "1")).ok

    tell(story)


def test_the_operators_timeout_holds_where_none_was_asked_for(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        assert (await shop.run(sandbox.id, "exec sleep 100", kind=SHELL)).cause is Cause.TIMEOUT
        assert (await shop.run(sandbox.id, "true", kind=SHELL, timeout_s=50.0)).ok

    tell(story, timeout_s=0.5)


def test_another_principals_sandbox_and_execution_do_not_exist(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        mine, other = await shop.create(), await shop.create()
        execution = await shop.executions.start(ANN, mine.id, command("cat", stdin_open=True))
        for ask in (shop.executions.get, shop.executions.events, shop.executions.kill, shop.executions.close_stdin):
            with pytest.raises(NotFound):
                await ask(BOB, mine.id, execution.id)
            with pytest.raises(NotFound):
                await ask(ANN, other.id, execution.id)
        with pytest.raises(NotFound):
            await shop.executions.run(BOB, mine.id, command("true"))
        with pytest.raises(NotFound):
            await shop.executions.list(BOB, mine.id)
        assert (await shop.executions.get(READER, mine.id, execution.id)).id == execution.id
        assert (await shop.executions.get(ADMIN, mine.id, execution.id)).id == execution.id
        with pytest.raises(Forbidden):
            await shop.executions.kill(READER, mine.id, execution.id)
        await shop.executions.close_stdin(ANN, mine.id, execution.id)
        assert (await shop.finished(execution.id)).result is not None

    tell(story)


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


def test_input_that_nobody_reads_does_not_pile_up(tell: Tell) -> None:
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
                    await shop.executions.write_stdin(ANN, sandbox.id, execution.id, bytes(1 << 20))
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
        assert "Nobody waited" in done.result.notes[-1]
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


async def wait_for_file(shop: Workshop, sandbox_id: str, path: str) -> None:
    async with shop.sandboxes.use(ANN, sandbox_id) as place:
        with anyio.fail_after(10):
            while True:
                with contextlib.suppress(NotFound):
                    await place.link.stat(path)
                    return
                await anyio.sleep(0.01)


def test_a_sandbox_that_is_lost_in_the_middle_is_a_result_that_says_so(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        results: list[Execution] = []

        async def call() -> None:
            results.append(await shop.executions.run(ANN, sandbox.id, command("echo > up; exec sleep 100")))

        async with anyio.create_task_group() as tasks:
            running = await shop.executions.begin(ANN, sandbox.id, command("echo said; exec sleep 100"))
            assert (await first_output(shop, sandbox.id, running.execution.id)).data == b"said\n"
            tasks.start_soon(call)
            await wait_for_file(shop, sandbox.id, "up")
            shop.kill_agent(sandbox.id)
            events = [event async for event in running.events()]
        followed = await running.wait()
        assert followed.result is not None
        assert followed.result == events[-1].result
        assert followed.result.stdout == b"said\n"
        for execution in (results[0], followed):
            assert execution.result is not None
            assert (execution.result.cause, execution.result.state) == (Cause.LOST, State.NONE)
            assert "not known" in str(execution.result.hint)
            kept = await shop.finished(execution.id)
            assert kept.result == execution.result
            assert len(await shop.finishes(execution.id)) == 1

    tell(story)


def test_a_connection_that_breaks_alone_costs_nothing(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        results: list[Execution] = []

        async def call() -> None:
            results.append(await shop.executions.run(ANN, sandbox.id, command("echo > up; read < gate; echo fine")))

        assert (await shop.run(sandbox.id, "mkfifo gate", kind=SHELL)).ok
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await wait_for_file(shop, sandbox.id, "up")
            async with shop.sandboxes.use(ANN, sandbox.id) as place:
                await place.link.aclose()
            assert (await shop.run(sandbox.id, "echo > gate", kind=SHELL)).ok
        assert results[0].result is not None
        assert results[0].result.stdout == b"fine\n"

    tell(story)


def test_a_sandbox_that_cannot_be_reached_is_an_error(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create(storage=EPHEMERAL)
        shop.kill_agent(sandbox.id)
        await wait_until(lambda: sandbox.id not in shop.lives.places)
        with pytest.raises((SandboxLost, NotFound)):
            await shop.executions.run(ANN, sandbox.id, command("true"))

    tell(story)


def test_what_runs_in_a_sandbox_that_is_stopped_is_ended_with_its_output(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        execution = await shop.executions.start(ANN, sandbox.id, command("echo before; exec sleep 100"))
        await first_output(shop, sandbox.id, execution.id)
        await shop.sandboxes.stop(ANN, sandbox.id)
        done = await shop.store.execution(execution.id)
        assert done is not None
        assert done.result is not None
        assert (done.result.cause, done.result.stdout) == (Cause.KILLED, b"before\n")

    tell(story)


def test_an_execution_resumes_a_stopped_sandbox(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        await shop.run(sandbox.id, "echo kept > f", kind=SHELL)
        await shop.sandboxes.stop(ANN, sandbox.id)
        assert (await shop.run(sandbox.id, "cat f", kind=SHELL)).stdout == b"kept\n"

    tell(story)


def test_the_same_idempotency_key_runs_once_and_answers_twice(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        new = command("echo x >> log; wc -l < log", idempotency_key="k1")
        found: list[Execution] = []

        async def call() -> None:
            found.append(await shop.executions.run(ANN, sandbox.id, new))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(call)
        assert len({execution.id for execution in found}) == 1
        assert all(one.result is not None and one.result.stdout == b"1\n" for one in found)
        await shop.executions.flush()
        assert (await shop.executions.run(ANN, sandbox.id, new)).id == found[0].id
        with pytest.raises(Conflict):
            await shop.executions.run(ANN, sandbox.id, dataclasses.replace(new, code="echo other"))

    tell(story)


def test_a_key_of_what_never_ran_can_be_used_again(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        for begin in (shop.executions.run, shop.executions.begin, shop.executions.start):
            with pytest.raises(InvalidRequest):
                await begin(ANN, sandbox.id, command("true", cwd="nowhere", idempotency_key="k"))
            with pytest.raises(NotFound):
                await begin(ANN, "sbx_0000000000", command("true", idempotency_key="k"))
        assert (await shop.executions.run(ANN, sandbox.id, command("echo x", idempotency_key="k"))).result is not None

    tell(story)


def test_a_background_key_finds_what_runs_already(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        new = command("exec sleep 100", idempotency_key="k")
        first = await shop.executions.start(ANN, sandbox.id, new)
        assert (await shop.executions.start(ANN, sandbox.id, new)).id == first.id
        await shop.executions.kill(ANN, sandbox.id, first.id)

    tell(story)


def test_cells_of_one_kernel_wait_for_each_other_and_too_many_are_refused(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        await shop.run(sandbox.id, "import os; os.mkfifo('gate'); n = 0")
        first = await shop.executions.start(ANN, sandbox.id, NewExecution(code="open('up', 'w'); open('gate').read()"))
        await wait_for_file(shop, sandbox.id, "up")
        waiting = [await shop.executions.start(ANN, sandbox.id, NewExecution(code="n += 1; n")) for _ in range(16)]
        with pytest.raises(Conflict, match="16 cells wait"):
            await shop.executions.run(ANN, sandbox.id, NewExecution(code="1"))
        with pytest.raises(Conflict, match="16 cells wait"):
            await shop.executions.start(ANN, sandbox.id, NewExecution(code="1"))
        await shop.run(sandbox.id, "echo > gate", kind=SHELL)
        for number, execution in enumerate(waiting, 1):
            done = await shop.finished(execution.id)
            assert done.result is not None
            assert done.result.displays[0].data == {"text/plain": str(number)}
        assert (await shop.finished(first.id)).result is not None

    tell(story)


def test_background_executions_count_against_the_quota_until_they_end(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        execution = await shop.executions.start(ANN, sandbox.id, command("exec sleep 100"))
        with pytest.raises(QuotaExceeded):
            await shop.executions.run(ANN, sandbox.id, command("true"))
        await shop.executions.kill(ANN, sandbox.id, execution.id)
        await shop.finished(execution.id)
        assert (await shop.run(sandbox.id, "true", kind=SHELL)).ok

    tell(story, own_executions=1)
