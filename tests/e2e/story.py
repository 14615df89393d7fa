"""One data folder of the local engine, and what a test wants to know of the processes behind it."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

import anyio

from warren.core.agent.client import AgentClient
from warren.domain.values import ExecKind, ExecRequest, ExecResult, Handle, SandboxSpec, new_id
from warren.engines.local.engine import LocalEngine
from warren.engines.local.spawn import group_name

if TYPE_CHECKING:
    from pathlib import Path

    from warren.domain.values import Image


async def run(engine: LocalEngine, handle: Handle, code: str, kind: ExecKind = ExecKind.CELL) -> ExecResult:
    async with AgentClient(await engine.connect(handle)) as agent:
        return await agent.run(ExecRequest(id=new_id("exe"), kind=kind, code=code))


class Story:
    """One data folder, and what a test wants to know of the processes behind it."""

    def __init__(self, folder: Path, image: Image) -> None:
        self.folder = folder
        self.image = image
        self.engine = LocalEngine(str(folder))

    def spec(self, **fields: Any) -> SandboxSpec:
        return SandboxSpec(**{"id": new_id("sbx"), "image": self.image, **fields})

    @property
    def keeper_pid(self) -> int:
        assert self.engine._client is not None
        return int(self.engine._client.hello["pid"])

    @property
    def zygote_pid(self) -> int:
        record = self.folder / "local" / "zygotes" / self.image.digest / "zygote.json"
        return int(json.loads(record.read_text())["pid"])

    async def next_one(self) -> dict[str, Any]:
        """Wait for the process that is ready to be the next sandbox; returns its record."""
        while not (found := self.next_ones()):  # noqa: ASYNC110  (no event tells of what the keeper does)
            await anyio.sleep(0.01)
        return found[0]

    def next_ones(self) -> list[dict[str, Any]]:
        """Return the records of the processes that are ready, one for each kind of storage."""
        found = []
        for path in (self.folder / "local" / "births").glob("next-*/record.json"):
            with contextlib.suppress(OSError):
                found.append(dict(json.loads(path.read_text())))
        return found

    def pid(self, handle: Handle) -> int:
        """Tell which process a sandbox has."""
        record = self.folder / "local" / "sandboxes" / handle.sandbox_id / "record.json"
        return int(json.loads(record.read_text())["pid"])

    async def clean(self) -> None:
        async for handle in self.engine.handles():
            await self.engine.destroy(handle)
        await self.engine.retire()


def left_of(folder: Path) -> list[str]:
    """Name what the engine of this data folder left on the host: processes, mounts, loop devices, control groups."""
    local = folder / "local"
    name = group_name(str(local)) if local.exists() else ""
    left = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read()
        except OSError:
            continue
        if os.fsencode(folder) in command:
            left.append(f"process {pid} {command!r}")
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        left += [line for line in file if str(folder) in line]
    for hierarchy, folders, _ in os.walk("/sys/fs/cgroup"):
        left += [os.path.join(hierarchy, found) for found in folders if name and found.startswith(name)]
    return left
