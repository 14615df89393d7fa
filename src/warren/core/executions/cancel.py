"""How an execution that nobody waits for is ended, and how the result of one is found again."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from warren.core.executions.records import build_lost, build_refused
from warren.domain.errors import Error, SandboxLost
from warren.guest.wire.frames import ProtocolError

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient
    from warren.core.executions.running import Running
    from warren.domain.values import ExecResult

_ANSWER_S = 10.0
"""How long an agent may take to do what it does at once."""
_ENDED = "Nobody waited for it any more, so it was ended."


async def find_result(agent: AgentClient, execution_id: str) -> ExecResult:
    """Wait for the end of an execution that an agent has. Raises NotFound when it has it no more."""
    async with contextlib.aclosing(agent.attach(execution_id)) as events:
        async for event in events:
            if event.result is not None:
                return event.result
    raise agent.break_off(ProtocolError("an execution ended without a result"))


async def end(running: Running, grace_s: float) -> ExecResult:
    """Interrupt an execution, kill it if that is not enough, and say how it ended."""
    execution, why = running.execution, "it did not end when it was killed"
    try:
        agent = running.open_link
        with anyio.move_on_after(_ANSWER_S + grace_s):
            await agent.interrupt(execution.id)
            with anyio.move_on_after(grace_s):
                return _ended(await find_result(agent, execution.id))
            await agent.kill(execution.id)
            return _ended(await find_result(agent, execution.id))
    except SandboxLost as error:
        why = str(error)
    except Error:
        return build_refused(execution, "whoever asked for it went away before it began")
    return build_lost(execution, why)


def _ended(result: ExecResult) -> ExecResult:
    return replace(result, notes=(*result.notes, _ENDED))
