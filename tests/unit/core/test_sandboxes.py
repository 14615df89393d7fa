from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio import lowlevel

from unit.core.estate import ADMIN, ANN, BOB, EPHEMERAL, READER, Estate, wait_until
from warren.core.policy.policy import Policy
from warren.core.sandboxes.changes import SandboxChanges
from warren.core.sandboxes.sandboxes import NewSandbox
from warren.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound, QuotaExceeded, SandboxLost, StartFailed
from warren.domain.lifecycle import Status
from warren.domain.records import ResourceUse, SandboxQuery
from warren.domain.values import MIB, Limits
from warren.engines.bare.engine import BareEngine
from warren.engines.bare.sandbox import link_library
from warren.guest.wire.frames import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from warren.domain.values import Handle, Image, Usage


def test_a_new_sandbox_runs_and_is_written_down(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox, is_new = await estate.sandboxes.create(
            ANN, NewSandbox(env={"CITY": "Bern"}, metadata={"task": "7"}, idle_timeout_s=0, max_lifetime_s=60)
        )

        assert is_new
        assert (sandbox.status, sandbox.owner, sandbox.image) == (Status.RUNNING, ANN.principal.owner, "python")
        assert (sandbox.idle_timeout_s, sandbox.max_lifetime_s) == (None, 60)
        assert await estate.sandboxes.get(ANN, sandbox.id) == sandbox
        assert (await estate.shell(sandbox.id, "echo $CITY")).stdout == b"Bern\n"
        assert await estate.handles() == {sandbox.id}
        assert await estate.audited("sandbox.create") == ["ok"]

    serve(scenario)


def test_another_principal_finds_nothing(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()
        sandboxes = estate.sandboxes

        for attempt in (
            sandboxes.get(BOB, sandbox.id),
            sandboxes.update(BOB, sandbox.id, SandboxChanges(metadata={})),
            sandboxes.stop(BOB, sandbox.id),
            sandboxes.start(BOB, sandbox.id),
            sandboxes.delete(BOB, sandbox.id),
            sandboxes.usage(BOB, sandbox.id),
            estate.shell(sandbox.id, "true", caller=BOB),
        ):
            with pytest.raises(NotFound, match="there is no sandbox"):
                await attempt
        assert (await sandboxes.list(BOB, SandboxQuery(owner=ANN.principal.owner))).total == 0

    serve(scenario)


def test_an_admin_does_not_use_what_is_anothers_and_is_told_so(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()

        for attempt in (
            estate.sandboxes.update(ADMIN, sandbox.id, SandboxChanges(metadata={})),
            estate.sandboxes.start(ADMIN, sandbox.id),
            estate.shell(sandbox.id, "true", caller=ADMIN),
        ):
            with pytest.raises(Forbidden, match="another's"):
                await attempt

    serve(scenario)


def test_an_admin_sees_and_ends_everybodys(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()

        assert (await estate.sandboxes.get(ADMIN, sandbox.id)).owner == ANN.principal.owner
        assert (await estate.sandboxes.list(ADMIN, SandboxQuery())).total == 1
        assert (await estate.sandboxes.stop(ADMIN, sandbox.id)).status is Status.STOPPED
        await estate.sandboxes.delete(ADMIN, sandbox.id)
        assert await estate.rows() == {}

    serve(scenario)


def test_a_key_to_read_changes_nothing(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()

        assert (await estate.sandboxes.get(READER, sandbox.id)).id == sandbox.id
        for attempt in (
            estate.create(caller=READER),
            estate.sandboxes.delete(READER, sandbox.id),
            estate.shell(sandbox.id, "true", caller=READER),
        ):
            with pytest.raises(Forbidden):
                await attempt

    serve(scenario)


def test_stop_and_start_keep_the_workspace_and_the_environment(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create(env={"CITY": "Bern"})
        await estate.shell(sandbox.id, "echo $CITY > kept.txt")

        stopped = await estate.sandboxes.stop(ANN, sandbox.id)
        again = await estate.sandboxes.stop(ANN, sandbox.id)
        started = await estate.sandboxes.start(ANN, sandbox.id)

        assert (stopped.status, again.status, started.status) == (Status.STOPPED, Status.STOPPED, Status.RUNNING)
        assert (await estate.shell(sandbox.id, "cat kept.txt; echo $CITY")).stdout == b"Bern\nBern\n"

    serve(scenario)


def test_using_a_stopped_sandbox_resumes_it_once(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()
        await estate.shell(sandbox.id, "echo 1 > kept.txt")
        await estate.sandboxes.stop(ANN, sandbox.id)
        outputs: list[bytes] = []

        async def read() -> None:
            outputs.append((await estate.shell(sandbox.id, "cat kept.txt")).stdout)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(read)

        assert outputs == [b"1\n"] * 5
        assert (await estate.sandboxes.get(ANN, sandbox.id)).status is Status.RUNNING

    serve(scenario)


def test_an_ephemeral_sandbox_is_not_stopped(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create(storage=EPHEMERAL)

        with pytest.raises(Conflict, match="delete it instead"):
            await estate.sandboxes.stop(ANN, sandbox.id)
        assert (await estate.shell(sandbox.id, "echo here")).stdout == b"here\n"

    serve(scenario)


def test_delete_leaves_nothing(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()

        await estate.sandboxes.delete(ANN, sandbox.id)

        assert (await estate.rows(), await estate.handles(), estate.transitions.live_sandboxes) == ({}, set(), {})
        with pytest.raises(NotFound):
            await estate.sandboxes.delete(ANN, sandbox.id)
        assert await estate.audited("sandbox.delete") == ["ok", "not_found"]

    serve(scenario)


def test_fifty_who_race_for_a_session_key_get_one_sandbox(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        found: list[tuple[str, bool]] = []

        async def create() -> None:
            sandbox, is_new = await estate.sandboxes.create(ANN, NewSandbox(session_key="chat-1"))
            assert sandbox.status is Status.RUNNING
            found.append((sandbox.id, is_new))

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(create)

        assert len({sandbox_id for sandbox_id, _ in found}) == 1
        assert sorted(is_new for _, is_new in found) == [False] * 49 + [True]
        assert await estate.handles() == set(await estate.rows()) == {found[0][0]}

    serve(scenario)


def test_a_sandbox_is_found_by_its_session_key_by_its_owner_alone(serve: Callable[..., None]) -> None:
    async def story(estate: Estate) -> None:
        mine = await estate.create(session_key="chat-1")
        assert (await estate.sandboxes.find(ANN, "chat-1")).id == mine.id
        for caller, key in ((BOB, "chat-1"), (ADMIN, "chat-1"), (ANN, "chat-2"), (ANN, "")):
            with pytest.raises(NotFound):
                await estate.sandboxes.find(caller, key)
        await estate.sandboxes.delete(ANN, mine.id)
        with pytest.raises(NotFound):
            await estate.sandboxes.find(ANN, "chat-1")

    serve(story)


def test_a_session_key_is_its_owners_and_resumes(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        mine = await estate.create(session_key="chat-1")
        theirs = await estate.create(BOB, session_key="chat-1")
        await estate.sandboxes.stop(ANN, mine.id)

        resumed, is_new = await estate.sandboxes.create(ANN, NewSandbox(session_key="chat-1"))

        assert mine.id != theirs.id
        assert (resumed.id, resumed.status, is_new) == (mine.id, Status.RUNNING, False)

    serve(scenario)


def test_an_idempotency_key_makes_one_sandbox(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        found: list[str] = []

        async def create() -> None:
            found.append((await estate.create(idempotency_key="k", metadata={"a": "1"})).id)

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(create)

        assert len(set(found)) == 1
        assert len(await estate.handles()) == 1
        with pytest.raises(Conflict):
            await estate.create(idempotency_key="k", metadata={"a": "2"})
        await estate.sandboxes.delete(ANN, found[0])
        assert (await estate.create(idempotency_key="k", metadata={"a": "1"})).id != found[0]

    serve(scenario)


def test_a_quota_holds_however_many_ask_at_once(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        outcomes: list[str] = []

        async def create() -> None:
            try:
                outcomes.append((await estate.create()).status)
            except QuotaExceeded as error:
                outcomes.append(error.code)

        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(create)

        assert sorted(outcomes) == ["quota_exceeded"] * 4 + ["running"] * 2
        assert await estate.handles() == set(await estate.rows()) == set(estate.transitions.live_sandboxes)
        stopped = next(iter(await estate.rows()))
        await estate.sandboxes.stop(ANN, stopped)
        await estate.create()
        with pytest.raises(QuotaExceeded):
            await estate.sandboxes.start(ANN, stopped)
        assert (await estate.sandboxes.get(ANN, stopped)).status is Status.STOPPED

    serve(scenario, own=ResourceUse(sandboxes=3, active=2))


def test_a_create_that_is_cancelled_leaves_nothing_behind(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(estate.sandboxes.create, ANN, NewSandbox(idempotency_key="k", session_key="s"))
                await wait_until(lambda: estate.transitions.live_sandboxes)
                scope.cancel()

        assert (await estate.rows(), await estate.handles(), estate.transitions.live_sandboxes) == ({}, set(), {})
        assert await estate.audited("sandbox.create") == ["cancelled"]
        assert (await estate.create(idempotency_key="k", session_key="s")).status is Status.RUNNING

    serve(scenario)


def test_a_create_whose_task_is_cancelled_leaves_nothing_behind(serve: Callable[..., None]) -> None:
    """Not through a scope: such a cancellation is held back by no shield."""

    async def scenario(estate: Estate) -> None:
        for steps in (1, 3, 10):
            task = asyncio.ensure_future(estate.create(session_key="s"))
            for _ in range(steps):
                await lowlevel.checkpoint()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await estate.rows(), await estate.handles(), estate.transitions.live_sandboxes) == ({}, set(), {})
        assert (await estate.create(session_key="s")).status is Status.RUNNING

    serve(scenario)


def test_a_create_that_fails_leaves_nothing_behind(serve: Callable[..., None], tmp_path: Path) -> None:
    async def scenario(estate: Estate) -> None:
        library = os.path.basename(link_library(str(tmp_path / "elsewhere")))
        in_the_way = anyio.Path(estate.data_dir, "bare", library)
        await in_the_way.write_text("a file, where the engine wants a folder")

        with pytest.raises(StartFailed, match="this host"):
            await estate.create(idempotency_key="k", session_key="s")

        assert (await estate.rows(), await estate.handles(), estate.transitions.live_sandboxes) == ({}, set(), {})
        assert await estate.audited("sandbox.create") == ["start_failed"]
        await in_the_way.unlink()
        assert (await estate.create(idempotency_key="k", session_key="s")).status is Status.RUNNING

    serve(scenario)


def test_an_image_that_is_not_there_is_named(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        with pytest.raises(NotFound, match="did you mean python"):
            await estate.create(image="pyton")
        assert await estate.rows() == {}

    serve(scenario)


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A": "\0"}, {"WARREN_SANDBOX": "x"}, {"A": "x" * 20_000}])
def test_an_environment_that_cannot_be_is_refused(env: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="env holds"):
        NewSandbox(env=env)


def test_a_persistent_sandbox_whose_agent_dies_is_stopped_and_resumes(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()
        await estate.shell(sandbox.id, "echo 1 > kept.txt")
        live = estate.transitions.live_sandboxes[sandbox.id]

        estate.kill_agent(sandbox.id)
        await wait_until(lambda: live.sandbox.status is Status.STOPPED)

        lost = await estate.sandboxes.get(ANN, sandbox.id)
        assert lost.reason is not None
        assert await estate.audited("sandbox.lost") == ["sandbox_lost"]
        assert (await estate.shell(sandbox.id, "cat kept.txt")).stdout == b"1\n"
        assert (await estate.sandboxes.get(ANN, sandbox.id)).reason is None

    serve(scenario)


def test_an_ephemeral_sandbox_whose_agent_dies_is_removed(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create(storage=EPHEMERAL)

        estate.kill_agent(sandbox.id)
        with pytest.raises((SandboxLost, NotFound)):
            await estate.shell(sandbox.id, "true")
        await wait_until(lambda: not estate.transitions.live_sandboxes)

        assert (await estate.rows(), await estate.handles()) == ({}, set())
        assert await estate.audited("sandbox.lost") == ["sandbox_lost"]

    serve(scenario)


def test_a_sandbox_that_breaks_its_protocol_is_stopped(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()
        await estate.shell(sandbox.id, "true")
        live = estate.transitions.live_sandboxes[sandbox.id]

        live.agent.break_off(ProtocolError("nonsense"))
        await wait_until(lambda: live.sandbox.status is Status.STOPPED)

        assert "broke its protocol" in ((await estate.sandboxes.get(ANN, sandbox.id)).reason or "")
        assert (await estate.shell(sandbox.id, "echo again")).stdout == b"again\n"

    serve(scenario)


def test_changes_are_kept_and_an_engine_that_cannot_resize_says_so(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create(metadata={"a": "1"}, max_lifetime_s=9)
        more = dataclasses.replace(Limits(), memory_bytes=1024 * MIB)

        changed = await estate.sandboxes.update(
            ANN, sandbox.id, SandboxChanges(metadata={"b": "2"}, idle_timeout_s=5, max_lifetime_s=0)
        )
        with pytest.raises(Exception, match="enforces no limits"):
            await estate.sandboxes.update(ANN, sandbox.id, SandboxChanges(limits=more))
        with pytest.raises(Conflict, match="disk"):
            await estate.sandboxes.update(
                ANN, sandbox.id, SandboxChanges(limits=dataclasses.replace(more, disk_bytes=16 * MIB))
            )

        assert (changed.metadata, changed.idle_timeout_s, changed.max_lifetime_s) == ({"b": "2"}, 5, None)
        assert (await estate.sandboxes.get(ANN, sandbox.id)).limits == Limits()
        await estate.sandboxes.stop(ANN, sandbox.id)
        stopped = await estate.sandboxes.update(ANN, sandbox.id, SandboxChanges(limits=more))
        assert stopped.limits == more

    serve(scenario)


def test_usage_is_measured_and_a_stopped_one_uses_nothing(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()

        assert ((await estate.sandboxes.usage(ANN, sandbox.id)).memory_bytes or 0) > 0
        await estate.sandboxes.stop(ANN, sandbox.id)
        assert (await estate.sandboxes.usage(ANN, sandbox.id)).memory_bytes == 0

    serve(scenario)


class MeddledEngine(BareEngine):
    """An engine that lets another caller act before it measures."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def usage(self, handle: Handle) -> Usage:
        if self.meanwhile is not None:
            await self.meanwhile()
        return await super().usage(handle)


def test_one_that_is_stopped_or_deleted_while_it_is_measured_is_not_lost(
    tmp_path: Path, images_dir: str, python_image: Image
) -> None:
    async def story() -> None:
        engine = MeddledEngine(str(tmp_path), allow=True)
        estate = Estate(str(tmp_path), images_dir, Policy(image=python_image.name), engine)
        async with estate.open():
            try:
                stopped, deleted = await estate.create(), await estate.create()
                engine.meanwhile = lambda: estate.sandboxes.stop(ANN, stopped.id)
                assert (await estate.sandboxes.usage(ANN, stopped.id)).memory_bytes == 0
                engine.meanwhile = lambda: estate.sandboxes.delete(ANN, deleted.id)
                with pytest.raises(NotFound):
                    await estate.sandboxes.usage(ANN, deleted.id)
            finally:
                with anyio.CancelScope(shield=True):
                    await estate.clean()

    anyio.run(story)


def test_use_is_noted(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()
        await estate.shell(sandbox.id, "true")

        seen = await estate.sandboxes.get(ANN, sandbox.id)

        assert sandbox.active_at < seen.active_at <= time.time()

    serve(scenario)


def test_a_call_during_a_stop_starts_the_sandbox_again(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()
        await estate.shell(sandbox.id, "true")
        before = estate.transitions.live_sandboxes[sandbox.id].agent
        is_ending, may_end = anyio.Event(), anyio.Event()

        async def end(_sandbox_id: str) -> None:
            is_ending.set()
            await may_end.wait()

        estate.transitions.before_end = end
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(estate.sandboxes.stop, ANN, sandbox.id)
            await is_ending.wait()
            tasks.start_soon(estate.shell, sandbox.id, "true")
            await anyio.wait_all_tasks_blocked()
            may_end.set()

        assert estate.transitions.live_sandboxes[sandbox.id].agent is not before

    serve(scenario)


def test_a_call_waits_for_a_sandbox_that_is_being_made(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(estate.sandboxes.create, ANN, NewSandbox())
            await wait_until(lambda: estate.transitions.live_sandboxes)
            result = await estate.shell(next(iter(estate.transitions.live_sandboxes)), "echo ready")

        assert result.stdout == b"ready\n"

    serve(scenario)
