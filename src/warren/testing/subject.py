"""The subject of an engine check: an open engine, specs to make with it, and helpers for common steps."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from warren.core.agent.client import AgentClient
from warren.domain.values import MIB, ExecKind, ExecRequest, ExecResult, Handle, SandboxSpec, new_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from warren.domain.errors import Error
    from warren.engines.base import Engine

DEADLINE_S = 30.0
"""For steps that take milliseconds; only a failure reaches it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The engine under check, and functions that only its author can write."""

    engine: Engine
    """Open; the checks never close it."""
    make_spec: Callable[..., SandboxSpec]
    """Build a spec with a new id; `limits`, `storage`, `env`, `image`, `store_id` and `id` replace the defaults."""
    make_engine: Callable[[], Engine]
    """Build another engine object over the same data, not yet open, as a restarted service does."""
    kill_agent: Callable[[Handle], Awaitable[None]]
    """Kill the agent from outside, without notice to the engine, as the out-of-memory killer does."""

    @contextlib.asynccontextmanager
    async def another_engine(self) -> AsyncIterator[Engine]:
        """Open another engine over the same data, for the length of a block."""
        engine = self.make_engine()
        await engine.open()
        try:
            yield engine
        finally:
            await engine.close()

    @contextlib.asynccontextmanager
    async def sandbox(self, **overrides: Any) -> AsyncIterator[Handle]:
        """Create a sandbox for the length of a block."""
        handle = await self.engine.create(self.make_spec(**overrides))
        try:
            yield handle
        finally:
            with anyio.CancelScope(shield=True):
                await self.engine.destroy(handle)

    @contextlib.asynccontextmanager
    async def agent(self, handle: Handle, engine: Engine | None = None) -> AsyncIterator[AgentClient]:
        """Connect to a sandbox for the length of a block."""
        async with AgentClient(await (engine or self.engine).connect(handle)) as agent:
            yield agent

    @contextlib.asynccontextmanager
    async def linked_sandbox(self, **overrides: Any) -> AsyncIterator[AgentClient]:
        """Create a sandbox and connect to it, for the length of a block."""
        async with self.sandbox(**overrides) as handle, self.agent(handle) as agent:
            yield agent

    async def listed(self, engine: Engine | None = None) -> set[str]:
        """Collect the ids that `handles` lists."""
        return {handle.sandbox_id async for handle in (engine or self.engine).handles()}


def request(code: str, kind: ExecKind = ExecKind.CELL, **fields: Any) -> ExecRequest:
    """Build an execution with a new id."""
    return ExecRequest(id=new_id("exe"), kind=kind, code=code, **fields)


async def run(agent: AgentClient, code: str, kind: ExecKind = ExecKind.CELL, **fields: Any) -> ExecResult:
    """Run code, by default as a cell, without standard input."""
    return await agent.run(request(code, kind, **fields))


async def printed(agent: AgentClient, code: str) -> str:
    """Run a cell that must succeed, and return its output."""
    result = await run(agent, code)
    assert result.ok, f"{code!r} ended with {result.cause}: {result.error or result.stderr!r}"
    return result.stdout.decode().strip()


async def text_file(agent: AgentClient, path: str) -> str:
    """Read a small file of the workspace."""
    return (await agent.read_bytes(path, MIB)).decode()


async def refused(error: type[Error], attempt: Awaitable[object]) -> str:
    """Await something that must fail with this error and one sentence; returns the sentence."""
    try:
        await attempt
    except error as exc:
        message = str(exc)
        assert message, "the error says nothing"
        assert "\n" not in message, f"more than one line: {message!r}"
        return message
    raise AssertionError(f"expected {error.__name__}, but it was done")
