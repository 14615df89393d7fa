"""The link to an agent of an older version: sandboxes, and the agents in them, outlive an upgrade of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.test_link_liars import Liar, lie
from warren.domain.values import Cause, Display, Event, ExecRequest, ExecResult, FileChange, State

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient

DISPLAY = b'{"data": {"text/plain": "1"}, "metadata": {}}'
BODY = (
    b'{"exec": "exe_1", "kind": "cell", "kernel": "main", "stdout_bytes": 4, "stderr_bytes": 36, "stdout_chars": 4, '
    b'"stderr_chars": 36, "truncated": false, "exit_code": 1, "cause": "error", "limit": null, "peak": null, '
    b'"state": "kept", "cells_back": 0, "protected": true, "why_unprotected": null, "error": {"name": '
    b'"ZeroDivisionError", "value": "division by zero", "traceback": "ZeroDivisionError: division by zero\\n"}, '
    b'"files_changed": [{"path": "f", "action": "created", "size": 1}], "files_changed_complete": true, '
    b'"duration_ms": 23.577, "cpu_ms": 5.563, "hint": "The traceback says where.", "notes": []}'
)
STDOUT, STDERR = b"out\n", b"ZeroDivisionError: division by zero\n"
SAID = (
    ({"t": "event", "seq": 1, "kind": "display", "display": "display"}, DISPLAY),
    (
        {"t": "event", "seq": 2, "kind": "result", "parts": [len(BODY), len(STDOUT), len(STDERR)]},
        BODY + STDOUT + STDERR,
    ),
    ({"t": "ok"}, b""),
)
"""What an agent of version 0.1.0 said that knew nothing of `whole`, and left out nothing."""

RESULT = ExecResult(
    id="exe_1",
    exit_code=1,
    cause=Cause.ERROR,
    state=State.KEPT,
    stdout=STDOUT,
    stderr=STDERR,
    stdout_bytes=4,
    stderr_bytes=36,
    stdout_chars=4,
    stderr_chars=36,
    displays=(Display({"text/plain": "1"}),),
    error={"name": "ZeroDivisionError", "value": "division by zero", "traceback": STDERR.decode()},
    files_changed=(FileChange("f", "created", 1),),
    duration_ms=23.577,
    cpu_ms=5.563,
    hint="The traceback says where.",
)


async def serve_as_before(liar: Liar) -> dict[str, Any]:
    asked, _ = await liar.receive()
    for header, payload in SAID:
        await liar.send({"id": asked["id"], **header}, payload)
    return asked


@pytest.mark.parametrize("stream", [False, True])
def test_its_executions_have_their_results(stream: bool) -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        seen: list[Event] = []

        async def run() -> None:
            request = ExecRequest(id="exe_1", code="1/0", stream=stream)
            assert await agent.run(request, on_event=seen.append) == RESULT

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            assert (await serve_as_before(liar)).get("whole", False) is not stream
        assert [event.kind for event in seen] == ["display", "result"]
        # The `ok` after it has been taken for what it is, and the next one is served.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await serve_as_before(liar)
        assert agent.lost is None

    lie(story)


def test_its_executions_can_be_followed_again() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        seen: list[Event] = []

        async def follow() -> None:
            seen.extend([event async for event in agent.attach("exe_1")])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await serve_as_before(liar)
        assert [event.seq for event in seen] == [1, 2]
        assert seen[-1].result == RESULT

    lie(story)
