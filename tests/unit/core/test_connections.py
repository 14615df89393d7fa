from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.estate import Estate, wait_until
from warren.core.sandboxes.connections import AgentConnections
from warren.domain.errors import EngineUnavailable, SandboxLost
from warren.domain.values import Handle, new_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.core.agent.client import AgentClient


def test_one_link_is_shared_and_reopened_when_it_was_lost(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        handle = Handle("bare", (await estate.create()).id)
        lost: list[tuple[str, AgentClient]] = []

        async def note(sandbox_id: str, agent: AgentClient) -> None:
            lost.append((sandbox_id, agent))

        async with AgentConnections(estate.engine, note) as connections:
            first = await connections.get(handle)
            assert await connections.get(handle) is connections.peek(handle.sandbox_id) is first
            await first.aclose()
            again: list[AgentClient] = []

            async def reopen() -> None:
                again.append(await connections.get(handle))

            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(reopen)
            second = again[0]
            await second.ping()
            assert set(again) == {second}
            assert second is not first
        assert lost in ([], [(handle.sandbox_id, first)])
        assert second.lost is not None

    serve(scenario)


def test_a_lost_link_is_told_of_and_a_dropped_one_is_not(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        dropped, dying = Handle("bare", (await estate.create()).id), Handle("bare", (await estate.create()).id)
        lost: list[str] = []

        async def note(sandbox_id: str, _agent: AgentClient) -> None:
            lost.append(sandbox_id)

        async with AgentConnections(estate.engine, note) as connections:
            for handle in (dropped, dying):
                await connections.get(handle)
            await connections.drop(dropped.sandbox_id)
            await connections.drop(dropped.sandbox_id)
            estate.kill_agent(dying.sandbox_id)
            await wait_until(lambda: lost)

        assert lost == [dying.sandbox_id]

    serve(scenario)


def test_a_sandbox_that_is_not_there_is_lost(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        with pytest.raises(SandboxLost):
            await estate.connections.get(Handle("bare", new_id("sbx")))

    serve(scenario)


def test_closing_does_not_call_a_sandbox_lost(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        handle = Handle("bare", (await estate.create()).id)
        connections = AgentConnections(estate.engine)
        async with connections:
            pass

        with pytest.raises(EngineUnavailable, match="stopping"):
            await connections.get(handle)

    serve(scenario)


def test_a_keeper_of_links_ends_with_what_its_body_raised(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        handle = Handle("bare", (await estate.create()).id)

        async def fail() -> None:
            async with AgentConnections(estate.engine) as connections:
                await connections.get(handle)
                raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            await fail()
        with anyio.move_on_after(0):
            async with AgentConnections(estate.engine) as connections:
                await connections.get(handle)

    serve(scenario)


def test_a_connection_is_given_out_only_when_fully_prepared(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        handle = Handle("bare", (await estate.create()).id)
        prepared: list[AgentClient] = []
        preparing, may_go = anyio.Event(), anyio.Event()

        async def prepare(_sandbox_id: str, agent: AgentClient) -> None:
            preparing.set()
            await may_go.wait()
            prepared.append(agent)

        async with AgentConnections(estate.engine) as connections:
            connections.on_open.append(prepare)

            async def get() -> None:
                assert await connections.get(handle) in prepared

            async with anyio.create_task_group() as first:
                first.start_soon(get)
                await preparing.wait()
                first.cancel_scope.cancel()
            assert connections.peek(handle.sandbox_id) is None
            preparing = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(get)
                await preparing.wait()
                tasks.start_soon(get)
                await anyio.wait_all_tasks_blocked()
                may_go.set()
            assert [connections.peek(handle.sandbox_id)] == prepared

    serve(scenario)
