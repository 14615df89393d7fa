"""Engine checks: effects of interrupts, kills and limits on a program, and that its variables survive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.errors import Conflict, Unsupported
from warren.domain.values import MIB, Cause, Limits, State
from warren.testing.subject import printed, refused, request, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from warren.core.agent.client import AgentClient
    from warren.domain.values import ExecResult
    from warren.testing.subject import Subject

_SPIN = "print('ready', flush=True)\nwhile True: pass"
_STUBBORN = (
    "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nx = 'spoilt'\nprint('ready', flush=True)\n"
    "while True: pass"
)
_TIMEOUT_S = 2.0
"""Time for a cell to report that it is ready, on a busy machine."""


async def check_a_timeout_keeps_variables(subject: Subject) -> None:
    """A cell that obeys the interrupt ends in time, with its partial output and all variables."""
    async with subject.linked_sandbox() as agent:
        await run(agent, "x = 41")
        result = await run(agent, f"x += 1\n{_SPIN}", timeout_s=_TIMEOUT_S)

        assert (result.cause, result.state) == (Cause.TIMEOUT, State.KEPT)
        assert result.limit == _TIMEOUT_S * 1000
        assert result.duration_ms >= _TIMEOUT_S * 1000
        assert result.stdout == b"ready\n"
        assert result.hint
        assert await printed(agent, "print(x)") == "42"


async def check_a_timeout_ends_what_does_not_listen(subject: Subject) -> None:
    """A cell that ignores the interrupt is killed after the grace, and the variables are as before it."""
    async with subject.linked_sandbox() as agent:
        await run(agent, "x = 'good'")
        result = await run(agent, _STUBBORN, timeout_s=_TIMEOUT_S, grace_s=0.2)

        assert (result.cause, result.state) == (Cause.TIMEOUT, State.ROLLED_BACK)
        assert await printed(agent, "print(x)") == "good"


async def check_silence_can_time_out(subject: Subject) -> None:
    """An idle timeout counts from the last output."""
    async with subject.linked_sandbox() as agent:
        result = await run(agent, _SPIN, idle_timeout_s=_TIMEOUT_S)

        assert result.cause is Cause.TIMEOUT
        assert result.stdout == b"ready\n"


async def check_an_interrupt_keeps_variables(subject: Subject) -> None:
    """Interrupted from outside, a cell ends with that cause and the kernel lives on."""
    async with subject.linked_sandbox() as agent:
        await run(agent, "x = 1")
        result = await _disturb(agent, f"x += 1\n{_SPIN}", agent.interrupt)

        assert (result.cause, result.state) == (Cause.INTERRUPTED, State.KEPT)
        assert await printed(agent, "print(x)") == "2"


async def check_a_kill_rolls_back(subject: Subject) -> None:
    """Killed from outside, a cell is gone and the variables are as before it."""
    async with subject.linked_sandbox() as agent:
        await run(agent, "x = 1")
        result = await _disturb(agent, f"x += 1\n{_SPIN}", agent.kill)

        assert (result.cause, result.state) == (Cause.KILLED, State.ROLLED_BACK)
        assert await printed(agent, "print(x)") == "1"


async def check_os_exit_rolls_back(subject: Subject) -> None:
    """`os._exit` ends the kernel; the code is reported and the variables are as before the cell."""
    result = await _crash(subject, "import os; os._exit(3)")

    assert result.exit_code == 3


async def check_a_segfault_rolls_back(subject: Subject) -> None:
    """So does a crash of the interpreter; the exit code is minus the signal."""
    result = await _crash(subject, "import ctypes; ctypes.string_at(0)")

    assert result.exit_code == -11


async def check_a_suicide_rolls_back(subject: Subject) -> None:
    """So does SIGKILL that a cell sends to itself."""
    result = await _crash(subject, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")

    assert result.exit_code == -9


async def check_out_of_memory_rolls_back(subject: Subject) -> None:
    """A cell that takes more than the limit is killed with cause oom, limit and peak, and the variables stay."""
    limit = 128 * MIB
    async with subject.linked_sandbox(limits=Limits(memory_bytes=limit)) as agent:
        await run(agent, "x = 'kept'")
        result = await run(agent, "hog = [bytearray(8 << 20) for _ in range(100)]", timeout_s=60)

        assert (result.cause, result.state) == (Cause.OOM, State.ROLLED_BACK)
        assert result.limit == limit
        assert result.peak is not None
        assert result.peak >= limit * 0.9
        assert result.hint
        assert await printed(agent, "print(x)") == "kept"


async def check_resize_applies(subject: Subject) -> None:
    """Another memory limit holds from then on, or the engine raises Unsupported."""
    small, large = Limits(memory_bytes=128 * MIB), Limits(memory_bytes=512 * MIB)
    # More than the small limit plus the share of checkpoints.
    take = f"len(bytearray({400 * MIB}))"
    async with subject.sandbox(limits=small) as handle, subject.agent(handle) as agent:
        try:
            await subject.engine.resize(handle, large)
        except Unsupported as exc:
            assert str(exc)
            return
        assert (await run(agent, take)).ok
        await subject.engine.resize(handle, small)
        result = await run(agent, take, timeout_s=60)
        assert result.cause is Cause.OOM, result


async def check_kernels_are_apart(subject: Subject) -> None:
    """Each kernel has its own variables; one can be made, forked, restarted and deleted by name."""
    async with subject.linked_sandbox() as agent:
        await agent.create_kernel("other")
        await refused(Conflict, agent.create_kernel("other"))
        await run(agent, "x = 'main'")
        await run(agent, "x = 'other'", kernel="other")
        assert await printed(agent, "print(x)") == "main"

        await agent.fork_kernel("main", "copy")
        copied = await run(agent, "x += '!'; print(x)", kernel="copy")
        assert copied.stdout == b"main!\n"
        assert await printed(agent, "print(x)") == "main"

        await agent.restart_kernel("main")
        assert await printed(agent, "print('x' in globals())") == "False"
        await agent.delete_kernel("copy")
        assert {kernel.name for kernel in await agent.kernels()} == {"main", "other"}


async def check_rollback_undoes_a_cell(subject: Subject) -> None:
    """Rolled back by one, the variables are as before the last cell; further than kept is a conflict."""
    async with subject.linked_sandbox() as agent:
        await run(agent, "x = 1")
        await run(agent, "x = 2")
        await agent.rollback_kernel("main", 1)

        assert await printed(agent, "print(x)") == "1"
        await refused(Conflict, agent.rollback_kernel("main", 8))


async def check_a_restart_ends_a_running_cell(subject: Subject) -> None:
    """A cell that runs while its kernel is restarted ends as interrupted, its variables lost."""
    async with subject.linked_sandbox() as agent:
        result = await _disturb(agent, _STUBBORN, lambda _: agent.restart_kernel("main"))

        assert (result.cause, result.state) == (Cause.INTERRUPTED, State.LOST)
        assert await printed(agent, "print('x' in globals())") == "False"


async def _disturb(agent: AgentClient, code: str, act: Callable[[str], Awaitable[object]]) -> ExecResult:
    """Run a cell, act on it when it reports that it is ready, and return its result."""
    asked = request(code)
    result = None
    async for event in agent.stream(asked):
        if event.kind == "stdout":
            await act(asked.id)
        result = event.result or result
    assert result is not None, "the stream ended without a result"
    return result


async def _crash(subject: Subject, code: str) -> ExecResult:
    async with subject.linked_sandbox() as agent:
        await run(agent, "x = 'good'")
        result = await run(agent, f"x = 'spoilt'\nprint('partial', flush=True)\n{code}", timeout_s=60)

        assert (result.cause, result.state) == (Cause.KILLED, State.ROLLED_BACK)
        assert result.stdout == b"partial\n"
        assert result.hint
        assert await printed(agent, "print(x)") == "good"
        return result
