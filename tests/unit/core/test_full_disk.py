"""When the disk of the sandboxes is full: said in a sentence, nothing left behind, no other sandbox disturbed."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.estate import ANN, Estate
from unit.local.forked import needs_root
from warren.core.agent.client import AgentClient
from warren.core.policy.policy import Policy
from warren.domain.errors import StartFailed
from warren.domain.lifecycle import Status
from warren.domain.values import SandboxSpec, Storage, new_id
from warren.engines.bare.engine import BareEngine
from warren.engines.local.engine import LocalEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from warren.domain.values import Image
    from warren.engines.base import Engine


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "disk")
    os.mkdir(path)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", path], check=True)
    yield path
    # Lazily: a sandbox that ended a moment ago may still be ending.
    subprocess.run(["umount", "--lazy", path], check=True)


@contextlib.contextmanager
def filled(disk: str) -> Iterator[None]:
    path = os.path.join(disk, "filling")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with contextlib.suppress(OSError):
        while True:
            os.write(fd, bytes(4096))
    os.close(fd)
    yield
    os.unlink(path)


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("kind", ["bare", "local"])
def test_a_full_disk_refuses_new_sandboxes_and_leaves_the_others_alone(
    tmp_path: Path, small_disk: str, images_dir: str, python_image: Image, kind: str
) -> None:
    engine: Engine = BareEngine(small_disk, allow=True) if kind == "bare" else LocalEngine(small_disk)

    async def go() -> None:
        estate = Estate(str(tmp_path), images_dir, Policy(image=python_image.name), engine)
        async with estate.open():
            first = await estate.create()
            with filled(small_disk):
                for storage in Storage:
                    with pytest.raises(StartFailed, match="the disk is full"):
                        await estate.create(storage=storage)
                assert set(await estate.rows()) == await estate.handles() == {first.id}
                assert (await estate.shell(first.id, "echo here")).stdout == b"here\n"
            again = await estate.create()
            assert again.status is Status.RUNNING
            for sandbox in (first, again):
                await estate.sandboxes.delete(ANN, sandbox.id)
        if isinstance(engine, LocalEngine):
            await engine.retire()

    anyio.run(go)


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("is_full", [True, False])
def test_what_a_full_disk_cost_a_workspace_is_said_when_it_is_stopped(
    small_disk: str, python_image: Image, *, is_full: bool
) -> None:
    """The sandbox itself hears nothing: its own disk has room, and what it wrote was taken."""
    engine = LocalEngine(small_disk)
    spec = SandboxSpec(id=new_id("sbx"), image=python_image, storage=Storage.PERSISTENT)

    async def go() -> None:
        await engine.open()
        handle = await engine.create(spec)
        try:
            async with AgentClient(await engine.connect(handle)) as agent:
                with filled(small_disk) if is_full else contextlib.nullcontext():
                    await agent.write("lost", os.urandom(4 << 20))
                    said = await engine.stop(handle)
            assert await engine.stop(handle) is None
        finally:
            await engine.destroy(handle)
            await engine.retire()
        if is_full:
            assert said is not None
            assert "the host's disk is full" in said
        else:
            assert said is None

    anyio.run(go)
