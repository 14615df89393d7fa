"""The operations of the wire, by name: those of executions here, the others from their own modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.guest.executions.execution import Execution
from warren.guest.executions.pipes import Stdin
from warren.guest.executions.process import ProcessRun
from warren.guest.executions.request import parse_run
from warren.guest.files import editor, ops, scratch
from warren.guest.kernels import table
from warren.guest.net import tunnel
from warren.guest.terminals import table as terminal_table
from warren.guest.wire.parameters import Refused, get_env, get_flag, get_limits, get_name, get_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.agent import Agent
    from warren.guest.executions.run import Run
    from warren.guest.wire.streams import Stream

    Operation = Callable[[Agent, Stream, dict[str, Any], bytes], None]


def _run(agent: Agent, stream: Stream, params: dict[str, Any], payload: bytes) -> None:
    execution = Execution(parse_run(params, payload))
    agent.executions.add(execution)
    if execution.request.stdin:
        execution.stdin = Stdin(agent.loop, stream)
    if execution.request.whole:
        execution.attach_whole(stream)
    else:
        execution.attach(stream)
        execution.pace_by(stream)
    try:
        run: Run
        if execution.request.kind == "cell":
            run = agent.kernels.run(execution)
        else:
            run = ProcessRun(agent, execution)
            run.start()
    except BaseException:
        agent.executions.forget(execution)
        raise
    if not execution.finished:
        agent.runs[execution.id] = run


def _attach(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    execution = agent.executions.get(get_name(params, "exec"))
    execution.attach(stream, get_number(params, "after", 0), follow=get_flag(params, "follow", default=True))


def _ack(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    execution = agent.executions.get(get_name(params, "exec"))
    if not execution.finished:
        raise Refused("conflict", f"execution {execution.id} is still running")
    agent.executions.forget(execution)
    stream.reply()


def _interrupt(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    if run := _find_run(agent, params):
        run.deadline.interrupt()
    stream.reply()


def _kill(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    if run := _find_run(agent, params):
        run.deadline.kill()
    stream.reply()


def _find_run(agent: Agent, params: dict[str, Any]) -> Run | None:
    """Return the run of an execution; None when it has finished already: there is nothing to stop."""
    execution = agent.executions.get(get_name(params, "exec"))
    return agent.runs.get(execution.id)


def _configure(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    env, limits = get_env(params), get_limits(params)
    agent.env.update(env)
    agent.limits.update(limits)
    stream.reply()


OPERATIONS: dict[str, Operation] = {
    "run": _run,
    "attach": _attach,
    "ack": _ack,
    "interrupt": _interrupt,
    "kill": _kill,
    "configure": _configure,
    **table.OPERATIONS,
    **terminal_table.OPERATIONS,
    **ops.OPERATIONS,
    **editor.OPERATIONS,
    **scratch.OPERATIONS,
    **tunnel.OPERATIONS,
}
