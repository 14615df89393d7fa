"""Commands that find one another on a data folder that no service has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import httpx
import pytest

from warren import AsyncClient
from warren.cli.options import Target
from warren.cli.service.connection import _build_retries, reachable
from warren.cli.service.listening import socket_path

if TYPE_CHECKING:
    from pathlib import Path

_DEADLINE_S = 60


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setenv("WARREN_ENGINE", "bare")
    monkeypatch.setenv("WARREN_ALLOW_BARE", "true")
    # As a command does not, which logs nothing: here others share the log.
    monkeypatch.setenv("WARREN_DEBUG", "true")
    return Target(data_dir=str(tmp_path))


def test_nothing_is_tried_twice_where_nothing_answers() -> None:
    error = httpx.ConnectError("refused")

    assert _build_retries(Target("http://127.0.0.1:1")).after_break(None, error, 1) is None  # type: ignore[arg-type]


def _has_name(data_dir: str) -> bool:
    return os.path.exists(socket_path(data_dir))


def test_a_command_that_serves_ends_after_those_that_found_it(target: Target) -> None:
    """The second has found the first when that is done: it has asked for nothing yet, and then for one thing of two."""

    async def serve(is_served: anyio.Event, is_done: anyio.Event) -> None:
        async with reachable(target):
            is_served.set()
            await is_done.wait()

    async def story() -> None:
        assert target.data_dir is not None
        is_served, is_done = anyio.Event(), anyio.Event()
        with anyio.fail_after(_DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve, is_served, is_done)
                await is_served.wait()
                async with reachable(target) as url, AsyncClient(url, retries=0) as client:
                    is_done.set()
                    while _has_name(target.data_dir):
                        await anyio.lowlevel.checkpoint()
                    assert (await client.health()).status == "healthy"
                    # What was asked for has been answered, and it is still there for what follows.
                    for _ in range(100):
                        await anyio.lowlevel.checkpoint()
                    assert (await client.health()).status == "healthy"
            async with reachable(target) as url, AsyncClient(url) as client:
                assert (await client.health()).status == "healthy"

    anyio.run(story)
