"""Executions as their callers see them: run, followed, in the background, written to, ended, and never lost."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.estate import ADMIN, ANN, BOB, EPHEMERAL, READER, wait_until
from unit.core.workshop import SHELL, Workshop, command, first_output, wait_for_file
from warren.core.executions.executions import NewExecution
from warren.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound, QuotaExceeded, SandboxLost, TooLarge
from warren.domain.values import KIB, Cause, ExecKind, State

if TYPE_CHECKING:
    from unit.core.workshop import Tell
    from warren.domain.records import Execution


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
            async with shop.sandboxes.use(ANN, sandbox.id) as live:
                await live.agent.aclose()
            assert (await shop.run(sandbox.id, "echo > gate", kind=SHELL)).ok
        assert results[0].result is not None
        assert results[0].result.stdout == b"fine\n"

    tell(story)


def test_a_sandbox_that_cannot_be_reached_is_an_error(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create(storage=EPHEMERAL)
        await shop.executions.run(ANN, sandbox.id, command("true"))
        shop.kill_agent(sandbox.id)
        await wait_until(lambda: sandbox.id not in shop.transitions.live_sandboxes)
        with pytest.raises((SandboxLost, NotFound)):
            await shop.executions.run(ANN, sandbox.id, command("true"))

    tell(story)


def test_a_sandbox_that_died_before_its_first_use_is_an_error_then(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create(storage=EPHEMERAL)
        shop.kill_agent(sandbox.id)
        with pytest.raises(SandboxLost):
            await shop.executions.run(ANN, sandbox.id, command("true"))
        assert sandbox.id not in shop.transitions.live_sandboxes

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
