"""Agents that are late or gone: no call waits for them longer than its own time, and results stay true."""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.estate import ANN, wait_until
from unit.core.workshop import Workshop, command, first_output, wait_for_file
from warren.core.executions.clocks import LATE_S, Clocks
from warren.core.executions.executions import NewExecution
from warren.core.executions.supervisor import Running
from warren.domain.lifecycle import Status
from warren.domain.records import Execution, Owner
from warren.domain.values import Cause, ExecKind, State, new_id

if TYPE_CHECKING:
    from unit.core.workshop import Tell

SILENT_S = 60
"""Far more than a call with these timeouts may take, and far less than a silent agent would keep it."""


async def _stopped(shop: Workshop, sandbox_id: str) -> None:
    """Wait until a sandbox without an agent has been found and stopped."""
    await wait_until(lambda: shop.transitions.live_sandboxes[sandbox_id].sandbox.status is Status.STOPPED)


def test_a_silent_agent_keeps_no_call_open_and_the_next_call_works(tell: Tell) -> None:
    """The service holds the time, whatever the agent does; it ends the sandbox of an agent that answers nothing."""

    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        assert (await shop.run(sandbox.id, "x = 1")).ok
        shop.kill_agent(sandbox.id, signal.SIGSTOP)
        with anyio.fail_after(SILENT_S):
            execution = await shop.executions.run(ANN, sandbox.id, NewExecution(code="1", timeout_s=0.2, grace_s=0.1))
        result = execution.result
        assert result is not None
        assert (result.cause, result.state, result.exit_code) == (Cause.LOST, State.LOST, None)
        assert "did not report its end in time" in str(result.hint)
        assert (await shop.finished(execution.id)).result == result
        await _stopped(shop, sandbox.id)
        assert (await shop.run(sandbox.id, "print('works')")).stdout == b"works\n"

    tell(story)


def test_a_follower_of_a_silent_agent_gets_a_result_too(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        new = command("echo said; exec sleep 100", timeout_s=5, grace_s=0.1)
        async with await shop.executions.begin(ANN, sandbox.id, new) as running:
            assert (await first_output(shop, sandbox.id, running.execution.id)).data == b"said\n"
            shop.kill_agent(sandbox.id, signal.SIGSTOP)
            with anyio.fail_after(SILENT_S):
                events = [event async for event in running.events()]
        assert events[-1].result is not None
        assert events[-1].result.cause is Cause.LOST
        assert events[-1].result.stdout == b"said\n"

    tell(story)


def test_an_agent_that_answers_late_is_asked_once_more(tell: Tell) -> None:
    """The sandbox stays, and so do the variables: an agent that answers is not given up."""

    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        assert (await shop.run(sandbox.id, "x = 1")).ok
        async with shop.sandboxes.use(ANN, sandbox.id) as live:
            agent = live.agent
            agent.give_up("exe_unknown", "late")
            await agent.ping()
            assert agent.lost is None
        assert (await shop.run(sandbox.id, "print(x)")).stdout == b"1\n"

    tell(story)


def _running(kernel: str | None, timeout_s: float | None = 5.0) -> Running:
    execution = Execution(
        id=new_id("exe"),
        sandbox_id="sbx_1",
        owner=Owner("default", "ann"),
        kind=ExecKind.SHELL if kernel is None else ExecKind.CELL,
        kernel=kernel,
        code="",
        background=False,
        request_id="",
        started_at=0.0,
    )
    return Running(execution, ANN, None, timeout_s=timeout_s, grace_s=1.0)


@pytest.mark.anyio
async def test_the_clock_of_a_cell_starts_when_the_cells_before_it_have_ended() -> None:
    clocks = Clocks()
    first, second, third = cells = [_running("main") for _ in range(3)]
    other, shell, endless = _running("other"), _running(None), _running(None, timeout_s=None)
    for running in (*cells, other, shell, endless):
        clocks.add(running)
    now = anyio.current_time()
    for running in (first, other, shell):
        assert now < running.watch.deadline <= now + 5 + 1 + LATE_S
    for running in (second, third, endless):
        assert running.watch.deadline == math.inf

    clocks.remove(second)
    assert third.watch.deadline == math.inf
    clocks.remove(first)
    assert third.watch.deadline < math.inf


def test_the_first_result_after_an_agent_died_says_that_variables_are_gone(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        for kernel in ("main", "other"):
            assert (await shop.run(sandbox.id, "x = 1", kernel=kernel)).state is State.KEPT
        shop.kill_agent(sandbox.id)
        await _stopped(shop, sandbox.id)

        async with await shop.executions.begin(ANN, sandbox.id, NewExecution(code="'x' in globals()")) as running:
            events = [event async for event in running.events()]
        first = events[-1].result
        assert first is not None
        assert (first.cause, first.state) == (Cause.EXITED, State.LOST)
        assert "variables of earlier cells are gone" in first.notes[-1]
        assert (await shop.finished(running.execution.id)).result == first
        assert (await shop.run(sandbox.id, "1")).state is State.KEPT
        assert (await shop.run(sandbox.id, "1", kernel="other")).state is State.LOST
        assert (await shop.run(sandbox.id, "1", kernel="new")).state is State.KEPT

    tell(story)


def test_a_cell_that_was_lost_with_its_agent_is_told_once(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        assert (await shop.run(sandbox.id, "x = 1")).ok

        async def die() -> None:
            await wait_for_file(shop, sandbox.id, "up")
            shop.kill_agent(sandbox.id)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(die)
            lost = await shop.run(sandbox.id, "open('up', 'w').close(); import time; time.sleep(100)")
        assert (lost.cause, lost.state) == (Cause.LOST, State.LOST)
        await _stopped(shop, sandbox.id)
        assert (await shop.run(sandbox.id, "1")).state is State.KEPT

    tell(story)
