"""Where an attack is played: short words for running programs of `programs/` inside a sandbox."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import anyio

from warren.domain.errors import StartFailed
from warren.domain.values import ExecKind
from warren.testing.subject import Subject, run

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient
    from warren.domain.values import ExecResult, Handle

PROGRAMS = os.path.join(os.path.dirname(__file__), "programs")
ROOTLESS = os.geteuid() != 0
_FIRST = "from __future__ import annotations"
PROMPTLY_S = 30.0
"""In which a sandbox that has nothing to do must answer; on an idle machine it takes milliseconds."""


def program(name: str) -> str:
    """Read the source of an attack."""
    with open(os.path.join(PROGRAMS, f"{name}.py"), encoding="utf-8") as file:
        return file.read()


async def report(
    agent: AgentClient, name: str, *arguments: object, kind: ExecKind = ExecKind.CELL, timeout_s: float = 60
) -> Any:
    """Run a program that ends well and prints one JSON value, and give that value."""
    given = f"{_FIRST}\nimport json\nARGUMENTS = json.loads({json.dumps(arguments)!r})\n"
    code = program(name).replace(_FIRST, given, 1)
    if kind is ExecKind.ARGV:
        result = await run(agent, "", kind, argv=("python", "-c", code), timeout_s=timeout_s)
    else:
        result = await run(agent, code, kind, timeout_s=timeout_s)
    assert result.ok, f"{name} ended with {result.cause}: {result.error or result.stderr.decode()}"
    return json.loads(result.stdout)


async def answers(agent: AgentClient) -> None:
    """Assert that the sandbox at the other end works, and promptly."""
    with anyio.fail_after(PROMPTLY_S):
        result = await run(agent, "print(1 + 1)")
    assert result.ok, result
    assert result.stdout == b"2\n"


async def stands(subject: Subject, handle: Handle) -> None:
    """Assert that a sandbox works for a new connection: its code, its commands and its files."""
    async with subject.agent(handle) as agent:
        await answers(agent)
        with anyio.fail_after(PROMPTLY_S):
            shell = await run(agent, "echo alive", ExecKind.SHELL)
            await agent.write("still-here", b"yes")
            content = await agent.read_bytes("still-here", 1000)
        assert (shell.ok, shell.stdout, content) == (True, b"alive\n", b"yes")


async def revive(agent: AgentClient) -> None:
    """Get a fresh kernel after everything in the sandbox was killed; the agent may ask for a moment's patience."""
    with anyio.fail_after(PROMPTLY_S):
        while True:
            try:
                return await agent.restart_kernel("main")
            except StartFailed as refusal:
                if "try again" not in str(refusal):
                    raise
                await anyio.sleep(0.1)


def explained(result: ExecResult) -> bool:
    """Tell whether a result that did not end well says what to do next, in one line."""
    return bool(result.hint) and "\n" not in (result.hint or "")
