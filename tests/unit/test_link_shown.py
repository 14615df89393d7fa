"""An execution that displays for ever: what the service holds of it is bounded, and the result says what is missing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.test_link_liars import Liar, answered, lie, request, result_frame
from warren.domain.errors import SandboxLost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warren.core.agent.client import AgentClient
    from warren.domain.values import ExecResult

# Small on the wire, and large as Python's objects.
LISTS = b'{"data": {}, "metadata": {"m": [%s[]]}}' % (b"[]," * 9_900)
NAMES = b'{"data": {%s"m": ""}}' % b"".join(b'"%d": "",' % number for number in range(10_000))


async def run_that_shows(agent: AgentClient, liar: Liar, displays: Iterable[bytes], **fields: Any) -> ExecResult:
    """Run something that displays all that, and then ends."""
    asked = request("1", stream=False)
    results: list[ExecResult] = []

    async def run() -> None:
        results.append(await agent.run(asked))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        sent, _ = await liar.receive()
        seq = 0
        for seq, payload in enumerate(displays, 1):
            header = {"t": "event", "id": sent["id"], "seq": seq, "kind": "display", "display": "display"}
            await liar.send(header, payload)
        header, content = result_frame(asked.id, **fields)
        await liar.send({"id": sent["id"], **header, "seq": seq + 1}, content)
    return results[0]


@pytest.mark.parametrize(
    ("payload", "most"),
    [
        (LISTS, 30),
        (NAMES, 10),
    ],
)
def test_displays_are_held_to_a_bound_and_the_rest_is_counted(payload: bytes, most: int) -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        result = await run_that_shows(agent, liar, [payload] * 40, notes=["A note."])
        kept = len(result.displays)
        assert 0 < kept <= most
        assert result.notes == ("A note.", f"{40 - kept} displays were dropped: too much was displayed to hold it.")
        assert agent.lost is None

    lie(story)


def test_what_an_agent_may_send_is_held() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        large = b'{"data": {"text/plain": "%s"}}' % (b"x" * ((4 << 20) - 64))
        small = b'{"data": {"text/plain": "1"}, "metadata": {}}'
        result = await run_that_shows(agent, liar, [large] * 3 + [small] * 10_000)
        assert len(result.displays) == 10_003
        assert result.notes == ()

    lie(story)


def test_an_agent_that_displays_for_ever_is_broken_off() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        async def show() -> None:
            sent, _ = await liar.receive()
            header = {"t": "event", "id": sent["id"], "seq": 1, "kind": "display", "display": "display"}
            with contextlib.suppress(SandboxLost):
                while agent.lost is None:
                    await liar.send(header, b'{"data": {"text/plain": "%s"}}' % (b"x" * (1 << 20)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(show)
            with pytest.raises(SandboxLost, match="displayed"):
                await agent.run(request("1", stream=False))
        assert agent.broke_protocol

    lie(story)


def test_a_result_of_any_length_is_not_read() -> None:
    async def story(agent: AgentClient, liar: Liar) -> None:
        outcome = await answered(agent, liar, lambda exec_id: result_frame(exec_id, hint="x" * (1 << 20)))
        assert isinstance(outcome, SandboxLost)
        assert agent.broke_protocol

    lie(story)
