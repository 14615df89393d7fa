"""Output bombs: programs that write without end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from security.arena import answers, explained, revive, stands
from warren.domain.values import MIB, Cause, ExecKind, State
from warren.testing.subject import printed, request, run

if TYPE_CHECKING:
    from warren.testing.subject import Subject

pytestmark = pytest.mark.anyio

BOTH = (ExecKind.CELL, ExecKind.SHELL)


@pytest.mark.parametrize("kind", BOTH)
async def test_endless_output_is_ended_and_named(subject: Subject, kind: ExecKind) -> None:
    code = "while True: print('spam ' * 1000)" if kind is ExecKind.CELL else "yes spam"
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'before'")
        result = await run(agent, code, kind, output_max_bytes=16 * MIB, timeout_s=60)

        assert result.cause is Cause.OUTPUT, result
        assert result.limit == 16 * MIB
        assert result.peak is not None
        assert result.peak >= 16 * MIB
        assert result.truncated
        assert len(result.stdout) <= 2 * MIB
        assert explained(result)
        assert await printed(agent, "print(x)") == "before"
        await stands(subject, handle)


@pytest.mark.parametrize("kind", BOTH)
async def test_one_line_of_a_gigabyte_keeps_its_ends(subject: Subject, kind: ExecKind) -> None:
    # Not by `os.write`: a single one may be short, where its process is stopped meanwhile.
    write = "import io\nwith io.BufferedWriter(io.FileIO(1, 'w', closefd=False)) as out:\n"
    write += " for part in (b'HEAD', *[b'x' * (1 << 20)] * 1024, b'TAIL'): out.write(part)"
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        asked = request(write, ExecKind.SCRIPT) if kind is ExecKind.SHELL else request(write)
        asked = request(write, asked.kind, output_max_bytes=2048 * MIB, timeout_s=60, stream=False)
        result = await agent.run(asked)

        assert result.ok, result
        assert result.stdout_bytes == 1024 * MIB + 8
        assert result.truncated
        assert result.stdout.startswith(b"HEADx")
        assert result.stdout.endswith(b"xTAIL")
        assert len(result.stdout) <= 2 * MIB
        await stands(subject, handle)


async def test_binary_output_arrives_as_it_was(subject: Subject) -> None:
    code = "import os; os.write(1, bytes(range(256)) * 16); os.write(2, b'\\xff\\xfe\\0' * 100)"
    async with subject.linked_sandbox() as agent:
        result = await run(agent, code)

    assert result.stdout == bytes(range(256)) * 16
    assert result.stderr == b"\xff\xfe\0" * 100


async def test_millions_of_tiny_writes_are_taken_in(subject: Subject) -> None:
    code = "import os\nwrite = os.write\nfor _ in range(1_000_000): write(1, b'.')"
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        result = await run(agent, code, ExecKind.SCRIPT, timeout_s=90)

        assert result.stdout_bytes == 1_000_000, result
        assert result.ok
        await stands(subject, handle)


async def test_an_unread_flood_does_not_stop_the_agent(subject: Subject) -> None:
    """The reader takes nothing while the program writes; another connection is served all the time."""
    flood = "import os\nfor _ in range(64): os.write(1, b'x' * (1 << 20))\nprint('over')"
    async with subject.sandbox() as handle:
        channel = await subject.engine.connect(handle)
        try:
            async with subject.agent(handle) as other:
                await answers(other)
                asked = request(flood, ExecKind.SCRIPT)
                async for event in other.stream(asked):
                    if event.kind == "stdout":
                        break
                await answers(other)
                with anyio.fail_after(30):
                    results = [event.result async for event in other.attach(asked.id) if event.result is not None]
                assert results[0].ok
                assert results[0].stdout_bytes == 64 * MIB + 5
        finally:
            await channel.aclose()
        await stands(subject, handle)


async def test_background_writers_do_not_hold_the_call(subject: Subject) -> None:
    """A child that keeps the output open and floods it after the call does not disturb the next one."""
    code = "(while true; do echo spam; done) & echo started"
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        result = await run(agent, code, ExecKind.SHELL, timeout_s=20)
        assert result.cause is Cause.EXITED
        assert b"started\n" in result.stdout
        for _ in range(5):
            assert (await run(agent, "print('mine')")).stdout == b"mine\n"
        await run(agent, "kill -9 -1", ExecKind.SHELL, timeout_s=10)
        await revive(agent)
        await stands(subject, handle)


async def test_a_flood_of_displays_is_bounded(subject: Subject) -> None:
    code = "from IPython.display import display\nfor n in range(20_000): display({'text/plain': 'x' * 2000}, raw=True)"
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        result = await run(agent, code, timeout_s=60)

        assert result.state is State.KEPT, result
        assert sum(len(text) for display in result.displays for text in display.data.values()) <= 16 * MIB
        assert any("was dropped" in display.data["text/plain"] for display in result.displays)
        await stands(subject, handle)
