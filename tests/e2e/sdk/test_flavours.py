"""What only one of the two clients can do."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import anyio
import pytest

import warren
from warren import AsyncClient, Client, Output

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from e2e.serving import RunningService

WAIT = "import time\nprint('begun', flush=True)\ntime.sleep(100)"


async def produce() -> AsyncIterator[bytes]:
    for number in range(3):
        await asyncio.sleep(0)
        yield b"%d" % number


def test_pieces_may_come_asynchronously(service: RunningService, url: str, shared: str) -> None:
    async def write() -> bytes:
        async with AsyncClient(url, service.key) as client:
            files = client.sandboxes.at(shared).files
            await files.write("pieces", produce())
            return await files.read("pieces")

    assert anyio.run(write) == b"012"
    with Client(url, service.key) as client, pytest.raises(TypeError, match="AsyncClient"):
        client.sandboxes.at(shared).files.write("pieces", produce())


def test_many_run_at_once(service: RunningService, url: str, shared: str) -> None:
    async def run() -> list[str]:
        async with AsyncClient(url, service.key) as client:
            sandbox = client.sandboxes.at(shared)
            results = await asyncio.gather(*(sandbox.exec(f"echo {number}") for number in range(10)))
        return [result.stdout.strip() for result in results]

    assert anyio.run(run) == [str(number) for number in range(10)]
    with Client(url, service.key) as client, ThreadPoolExecutor(4) as threads:
        sandbox = client.sandboxes.at(shared)
        found = threads.map(lambda number: sandbox.exec(f"echo {number}").stdout.strip(), range(10))
        assert list(found) == [str(number) for number in range(10)]


def test_what_is_cancelled_ends_and_its_sandbox_is_removed(service: RunningService, url: str) -> None:
    async def cancel() -> str:
        async with AsyncClient(url, service.key) as client:
            with anyio.CancelScope() as scope:
                async with client.sandbox() as sandbox:
                    async for event in sandbox.stream(WAIT):
                        if isinstance(event, Output):
                            scope.cancel()
            assert scope.cancelled_caught
            with pytest.raises(warren.NotFound):
                await sandbox.refresh()
        return sandbox.id

    assert anyio.run(cancel).startswith("sbx_")


def test_a_loop_that_is_left_without_a_word_leaves_nothing_open(service: RunningService, url: str, shared: str) -> None:
    async def leave() -> str:
        async with AsyncClient(url, service.key) as client:
            async for event in client.sandboxes.at(shared).stream(WAIT):
                if isinstance(event, warren.Started):
                    execution = client.sandboxes.at(shared).execution(event.execution_id)
                if isinstance(event, Output):
                    break
            result = await execution.wait()
        return str(result.cause)

    assert anyio.run(leave) == "killed"
    with Client(url, service.key) as client:
        for event in client.sandboxes.at(shared).stream(WAIT):
            if isinstance(event, warren.Started):
                execution = client.sandboxes.at(shared).execution(event.execution_id)
            if isinstance(event, Output):
                break
        assert execution.wait().cause == "killed"
