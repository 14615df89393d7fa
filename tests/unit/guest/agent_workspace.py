"""A real agent and its workspace, which tests use through a real client."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import anyio

from warren.core.agent.client import AgentClient
from warren.engines.unix_channel import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from unit.guest.agent_client import RunningAgent

T = TypeVar("T")
DEADLINE_S = 60


@dataclass
class AgentWorkspace:
    """An agent and its workspace, seen from outside."""

    agent: RunningAgent

    def do(self, story: Callable[[AgentClient], Awaitable[T]]) -> T:
        """Run `story` with a client of the agent."""

        async def tell() -> T:
            with anyio.fail_after(DEADLINE_S):
                async with AgentClient(await connect(self.agent.path)) as client:
                    return await story(client)

        return anyio.run(tell)

    async def until(self, condition: Callable[[], object]) -> None:
        """Poll for a change in the agent's processes that no event reports; the test's deadline ends it."""
        while not condition():  # noqa: ASYNC110 - as above
            await anyio.sleep(0.005)

    def path(self, name: str) -> str:
        return os.path.join(self.agent.workspace, name)

    def make(self, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            with open(self.path(name), "wb") as file:
                file.write(content)

    def read(self, name: str) -> bytes:
        with open(self.path(name), "rb") as file:
            return file.read()

    def tree(self) -> list[str]:
        """List everything in the workspace."""
        found = []
        for folder, folders, files in os.walk(self.agent.workspace):
            found += [os.path.relpath(os.path.join(folder, name), self.agent.workspace) for name in folders + files]
        return sorted(found)

    def clear(self) -> None:
        for name in os.listdir(self.agent.workspace):
            path = self.path(name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
