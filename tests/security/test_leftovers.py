"""A process that an older execution left behind attacks a later one, whose result must be true."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING

import pytest

from security.arena import program
from warren.domain.values import ExecKind
from warren.testing.subject import run

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient
    from warren.domain.values import ExecResult
    from warren.testing.subject import Subject

pytestmark = pytest.mark.anyio

KINDS = (ExecKind.CELL, ExecKind.SCRIPT, ExecKind.SHELL, ExecKind.ARGV)
_VICTIM = """
echo $$ > /workspace/victim-$$
while [ $(ls /workspace | grep -c "reached-$$\\$") -lt {attackers} ]; do sleep 0.01; done
echo done $$
"""
_PYTHON_VICTIM = """
import os, time
open(f"/workspace/victim-{os.getpid()}", "w").close()
while sum(name.endswith(f".reached-{os.getpid()}") for name in os.listdir("/workspace")) < ATTACKERS: time.sleep(0.01)
print("done", os.getpid())
"""


async def _leave(agent: AgentClient, name: str, kind: ExecKind, *, kill_leftovers: bool = False) -> int:
    """Have an execution leave an attacker behind, and return its pid."""
    code = f"ARGUMENTS = {(name, program('reach_victim'))!r}\n" + program("leftover").partition("annotations\n")[2]
    if kind is ExecKind.SHELL:
        code = f"python - <<'EOF'\n{code}\nEOF\n"
    argv = ("python", "-c", code) if kind is ExecKind.ARGV else ()
    result = await run(agent, "" if argv else code, kind, argv=argv, timeout_s=60, kill_leftovers=kill_leftovers)
    assert result.ok, result
    return int(result.stdout)


async def _be_victim(agent: AgentClient, kind: ExecKind, attackers: int) -> tuple[int, ExecResult]:
    """Run a program that ends once all attackers have tried, and return its pid."""
    python = _PYTHON_VICTIM.replace("ATTACKERS", str(attackers))
    argv = ("python", "-c", python) if kind is ExecKind.ARGV else ()
    code = "" if argv else _VICTIM.format(attackers=attackers) if kind is ExecKind.SHELL else python
    result = await run(agent, code, kind, argv=argv, timeout_s=60)
    word, pid = result.stdout.split()
    assert word == b"done"
    return int(pid), result


async def _reached(agent: AgentClient, name: str, what: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(await agent.read_bytes(f"{name}.{what}", 1000))
    return found


async def test_a_leftover_cannot_write_to_a_later_execution_nor_trace_it(subject: Subject) -> None:
    """Of every kind against every kind: through /proc/PID/fd a leftover would write its output, through mem its end."""
    async with subject.linked_sandbox() as agent:
        pids = {kind: await _leave(agent, kind.value, kind) for kind in KINDS}
        for victim in KINDS:
            pid, result = await _be_victim(agent, victim, len(KINDS))

            assert result.ok, result
            for kind in KINDS:
                # A cell runs in its kernel, which is no later process than what the kernel left behind.
                if (kind, victim) == (ExecKind.CELL, ExecKind.CELL):
                    continue
                found = await _reached(agent, kind.value, f"reached-{pid}")
                assert {found[name] for name in ("output", "memory", "folder")} == {errno.EACCES}, (kind, victim, found)
        for kind in KINDS:
            # What it starts itself it may reach, so the attempts are real.
            assert set((await _reached(agent, kind.value, "child")).values()) == {0}
        ended = await run(agent, f"kill -9 {' '.join(map(str, pids.values()))}", ExecKind.SHELL)

    assert ended.ok, "a later command ends what an older one left running"


async def test_what_an_execution_leaves_that_should_leave_nothing_signals_no_other(subject: Subject) -> None:
    """It was not found at the end of its execution; all that it can still signal is its own."""
    kinds = KINDS[1:]
    async with subject.linked_sandbox() as agent:
        await run(agent, "1")
        for kind in kinds:
            await _leave(agent, kind.value, kind, kill_leftovers=True)
        for victim in KINDS:
            pid, _ = await _be_victim(agent, victim, len(kinds))
            for kind in kinds:
                assert (await _reached(agent, kind.value, f"reached-{pid}"))["signal"] == errno.EPERM, (kind, victim)
        for kind in kinds:
            assert set((await _reached(agent, kind.value, "child")).values()) == {0}


async def test_a_leftover_does_not_reach_a_terminal(subject: Subject) -> None:
    code = "echo > /workspace/victim-$$; while [ ! -e /workspace/first.reached-$$ ]; do sleep 0.01; done"
    async with subject.linked_sandbox() as agent:
        await _leave(agent, "first", ExecKind.SCRIPT)
        terminal = await agent.terminal("t", argv=("bash", "-c", code))
        assert await terminal.exit_code() == 0
        (name,) = [one.path for one in (await agent.list("."))[0] if one.path.startswith("first.reached-")]
        found = json.loads(await agent.read_bytes(name, 1000))

    assert (found["output"], found["memory"]) == (errno.EACCES, errno.EACCES)
