"""Nothing is lost and nothing is left when a process of the local engine is killed: keeper, zygote, service, agent."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from e2e.story import Story, left_of, run
from warren.core.agent.client import AgentClient
from warren.domain.errors import EngineUnavailable, InvalidRequest, SandboxLost
from warren.domain.values import Handle, Storage
from warren.engines import state_files
from warren.engines.local.engine import LocalEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def keepers_of(folder: Path) -> list[int]:
    """Return the ids of the keepers of a data folder, and of those that are about to be one."""
    return [int(one.split()[1]) for one in left_of(folder) if "local.keeper" in one]


async def kill_keepers(folder: Path) -> None:
    """Kill each as soon as it is there."""
    while True:
        for pid in keepers_of(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await anyio.sleep(0.01)


def test_a_killed_keeper_is_followed_by_another_and_nothing_is_lost(tell: Any) -> None:
    async def story(s: Story) -> None:
        handle = await s.engine.create(s.spec())
        await run(s.engine, handle, "x = 41")
        keeper, zygote = s.keeper_pid, s.zygote_pid
        os.kill(keeper, signal.SIGKILL)
        result = await run(s.engine, handle, "print(x + 1)")
        other = await s.engine.create(s.spec())

        assert result.stdout == b"42\n"
        assert (await run(s.engine, other, "print(1)")).stdout == b"1\n"
        assert s.keeper_pid != keeper
        assert s.zygote_pid == zygote, "the zygote outlives its keeper"
        assert (await s.engine.usage(handle)).pids

    tell(story)


def test_a_keeper_of_a_deleted_data_folder_takes_nothing_from_the_one_that_was_made_again(tell: Any) -> None:
    async def story(s: Story) -> None:
        await s.engine.destroy(await s.engine.create(s.spec()))
        await s.next_one()
        keeper = s.keeper_pid
        await s.engine.close()
        subprocess.run(["rm", "--recursive", str(s.folder / "local")], check=True)  # noqa: ASYNC221
        handle = await s.engine.create(s.spec())
        await run(s.engine, handle, "x = 41")
        await s.next_one()
        assert s.keeper_pid != keeper
        await s.engine.close()
        ended = os.pidfd_open(keeper)
        os.kill(keeper, signal.SIGTERM)
        await anyio.wait_readable(ended)
        os.close(ended)

        others = keepers_of(s.folder)
        await s.engine.open()
        assert others == [s.keeper_pid]
        assert (await run(s.engine, handle, "print(x + 1)")).stdout == b"42\n"
        assert await s.next_one()
        assert (await run(s.engine, await s.engine.create(s.spec()), "print(1)")).stdout == b"1\n"

    tell(story)


@pytest.mark.root
def test_a_keeper_that_is_terminated_ends_every_sandbox_and_keeps_what_is_meant_to_stay(tell: Any) -> None:
    """As at the shutdown of a machine, or when the scope that they are in is stopped."""

    async def story(s: Story) -> None:
        kept = await s.engine.create(s.spec(storage=Storage.PERSISTENT))
        gone = await s.engine.create(s.spec())
        await run(s.engine, kept, "open('kept.txt', 'w').write('kept')")
        ended = os.pidfd_open(s.keeper_pid)
        os.kill(s.keeper_pid, signal.SIGTERM)
        await anyio.wait_readable(ended)
        os.close(ended)

        assert left_of(s.folder) == []
        await s.engine.start(kept, s.spec(id=kept.sandbox_id, storage=Storage.PERSISTENT))
        assert (await run(s.engine, kept, "print(open('kept.txt').read())")).stdout == b"kept\n"
        with pytest.raises(SandboxLost):
            await s.engine.usage(gone)

    tell(story)


def test_a_killed_zygote_is_replaced_and_its_sandboxes_live_on(tell: Any) -> None:
    async def story(s: Story) -> None:
        handle = await s.engine.create(s.spec())
        await run(s.engine, handle, "x = 41")
        zygote = s.zygote_pid
        os.kill(zygote, signal.SIGKILL)
        # The first may be a process that it had forked ahead.
        while s.zygote_pid == zygote:
            try:
                other = await s.engine.create(s.spec())
            except Exception as error:
                if "try again" not in str(error):
                    raise

        assert (await run(s.engine, handle, "print(x + 1)")).stdout == b"42\n"
        assert (await run(s.engine, other, "print(2)")).stdout == b"2\n"

    tell(story)


def test_a_call_that_runs_while_the_service_is_killed_is_found_finished(tell: Any) -> None:
    """The service is a real process, killed while its call is under way."""
    service = """
        import asyncio, os, sys
        from warren.core.agent.client import AgentClient
        from warren.domain.values import ExecRequest, Handle
        from warren.engines.local.engine import LocalEngine

        async def main():
            engine = LocalEngine(sys.argv[1])
            async with AgentClient(await engine.connect(Handle("local", sys.argv[2]))) as agent:
                request = ExecRequest(id="exe_survives0", code=sys.argv[3])
                await agent.run(request, on_event=lambda event: print(event.data, flush=True))

        asyncio.run(main())
    """

    code = """
        import os, time
        print('started', flush=True)
        while not os.path.exists('go'): time.sleep(0.01)
        y = 7
        print('done')
    """

    async def story(s: Story) -> None:
        handle = await s.engine.create(s.spec())
        argv = ["-c", textwrap.dedent(service), str(s.folder), handle.sandbox_id, textwrap.dedent(code)]
        process = subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE)  # noqa: ASYNC220
        assert process.stdout is not None
        assert process.stdout.readline() == b"b'started\\n'\n"
        process.kill()
        process.wait()
        process.stdout.close()
        async with AgentClient(await s.engine.connect(handle)) as agent:
            await agent.write("go", b"")
            events = [event async for event in agent.attach("exe_survives0")]
        result = events[-1].result

        assert result is not None
        assert result.stdout == b"started\ndone\n"
        assert (await run(s.engine, handle, "print(y)")).stdout == b"7\n"

    tell(story)


def test_a_killed_agent_costs_its_sandbox_and_a_persistent_workspace_starts_again(tell: Any) -> None:
    async def story(s: Story) -> None:
        spec = s.spec(storage=Storage.PERSISTENT)
        handle = await s.engine.create(spec)
        await run(s.engine, handle, "open('kept', 'w').write('yes')")
        record = s.folder / "local" / "sandboxes" / spec.id / "record.json"
        channel = await s.engine.connect(handle)
        await channel.receive()
        os.kill(json.loads(record.read_text())["pid"], signal.SIGKILL)
        while await channel.receive():
            pass
        await channel.aclose()
        while json.loads(record.read_text())["state"] != "stopped":  # noqa: ASYNC110
            await anyio.sleep(0.01)
        with pytest.raises(SandboxLost):
            await s.engine.connect(handle)
        await s.engine.start(handle, spec)

        assert (await run(s.engine, handle, "print(open('kept').read())")).stdout == b"yes\n"

    tell(story)


def test_a_sandbox_half_made_by_a_killed_keeper_is_listed_and_can_be_destroyed(tell: Any) -> None:
    async def story(s: Story) -> None:
        await s.engine.create(s.spec())
        half = s.folder / "local" / "sandboxes" / "sbx_halfmade0"
        os.kill(s.keeper_pid, signal.SIGKILL)
        half.mkdir()
        listed = [handle.sandbox_id async for handle in s.engine.handles()]
        await s.engine.destroy(Handle("local", "sbx_halfmade0"))

        assert "sbx_halfmade0" in listed
        assert not half.exists()

    tell(story)


def test_a_keeper_of_another_version_hands_over_its_sandboxes(tell: Any) -> None:
    async def story(s: Story) -> None:
        handle = await s.engine.create(s.spec())
        await run(s.engine, handle, "x = 41")
        keeper = s.keeper_pid
        await s.engine.retire()
        result = await run(s.engine, handle, "print(x + 1)")
        await s.engine.open()

        assert result.stdout == b"42\n"
        assert s.keeper_pid != keeper
        assert [found.sandbox_id async for found in s.engine.handles()] == [handle.sandbox_id]

    tell(story)


def test_a_start_that_was_given_up_is_no_obstacle_to_the_next(tell: Any) -> None:
    async def story(s: Story) -> None:
        async def have_keepers(enough: Callable[[int], bool]) -> None:
            while not enough(len(keepers_of(s.folder))):  # noqa: ASYNC110  (no event tells)
                await anyio.sleep(0.01)

        await s.engine.retire()
        # As one that ends holds it: a keeper that is started meanwhile waits.
        lock = os.open(s.folder / "local" / "keeper.sock.lock", os.O_RDWR)
        fcntl.lockf(lock, fcntl.LOCK_EX)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(s.engine.open)
            await have_keepers(lambda count: count == 1)
            tasks.cancel_scope.cancel()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(s.engine.open)
            await have_keepers(lambda count: count > 1)
            os.close(lock)
        handle = await s.engine.create(s.spec())
        await have_keepers(lambda count: count == 1)

        assert (await run(s.engine, handle, "print(1)")).stdout == b"1\n"

    tell(story)


def test_the_log_of_a_keeper_stays_when_another_starts_and_is_not_read_as_its_log(tell: Any) -> None:
    async def story(s: Story) -> None:
        log = s.folder / "local" / "keeper.log"
        log.write_bytes(b"long ago\n" + b"before\n" * state_files.MAX_LOG + b"what the first said\n")
        await s.engine._start()
        assert log.read_bytes().endswith(b"before\nwhat the first said\n")
        assert log.stat().st_size <= state_files.MAX_LOG

        await s.engine.retire()
        lock = os.open(s.folder / "local" / "keeper.sock.lock", os.O_RDWR)
        fcntl.lockf(lock, fcntl.LOCK_EX)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill_keepers, s.folder)
            with pytest.raises(EngineUnavailable, match="the keeper did not start: it said nothing in"):
                await s.engine.open()
            tasks.cancel_scope.cancel()
        os.close(lock)

    tell(story)


def test_no_keeper_is_left_where_none_that_is_started_will_do(tell: Any) -> None:
    async def story(s: Story) -> None:
        # What none says of itself, as one of another version would not.
        demanding = LocalEngine(str(s.folder), debug="so so")  # type: ignore[arg-type]
        with pytest.raises(EngineUnavailable, match="the keeper ends as soon as it has started"):
            await demanding.open()

        assert keepers_of(s.folder) == []

    tell(story)


def test_a_layer_that_is_named_twice_is_optional(tell: Any) -> None:
    async def story(s: Story) -> None:
        lax = LocalEngine(str(s.folder), optional_layers=["disk", "disk"])
        await lax.open()
        await lax.close()

    tell(story)


def test_a_keeper_that_may_do_without_a_layer_does_not_serve_an_engine_that_requires_it(tell: Any) -> None:
    async def story(s: Story) -> None:
        lax = LocalEngine(str(s.folder), optional_layers=["disk"])
        handle = await lax.create(s.spec())
        await lax.close()
        await s.engine.open()

        assert s.engine._client is not None
        assert s.engine._client.hello["config"] == {"optional_layers": [], "debug": False}
        assert [found.sandbox_id async for found in s.engine.handles()] == [handle.sandbox_id]

    tell(story)


def test_a_layer_that_does_not_exist_is_refused_although_a_keeper_runs(tell: Any) -> None:
    async def story(s: Story) -> None:
        with pytest.raises(InvalidRequest, match="unknown layer 'memroy'"):
            await LocalEngine(str(s.folder), optional_layers=["memroy"]).open()

    tell(story)
