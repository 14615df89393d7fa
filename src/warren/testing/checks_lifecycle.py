"""Engine checks: making, finding, stopping, losing and removing sandboxes."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from warren.domain.errors import Conflict, Error, InvalidRequest, SandboxLost
from warren.domain.values import MIB, ExecKind, Handle, Image, Limits, Storage, new_id
from warren.guest.wire.frames import PROTOCOL_VERSION, Decoder
from warren.testing.subject import DEADLINE_S, printed, refused, request, run, text_file

if TYPE_CHECKING:
    from warren.engines.base import Engine
    from warren.testing.subject import Subject


async def check_a_new_sandbox_says_hello_with_its_id(subject: Subject) -> None:
    """The first frame of a connection is a hello of our protocol version from the requested sandbox."""
    async with subject.sandbox() as handle:
        channel = await subject.engine.connect(handle)
        frames = list(Decoder().feed(await channel.receive()))
        await channel.aclose()

        assert frames, "nothing came"
        header, _ = frames[0]
        assert header["t"] == "hello"
        assert header["version"] == PROTOCOL_VERSION
        assert header["sandbox"] == handle.sandbox_id


async def check_two_connections_work_at_once(subject: Subject) -> None:
    """A second connection is answered while the first one stays open and is used."""
    async with subject.sandbox() as handle, subject.agent(handle) as one, subject.agent(handle) as two:
        await run(one, "x = 1")

        assert await printed(two, "x += 1; print(x)") == "2"
        assert await printed(one, "print(x)") == "2"


async def check_an_id_in_use_is_a_conflict(subject: Subject) -> None:
    """Creating the same id again is refused and does not disturb the one that has it."""
    spec = subject.make_spec()
    async with subject.sandbox(id=spec.id) as handle:
        await refused(Conflict, subject.engine.create(spec))

        async with subject.agent(handle) as agent:
            assert await printed(agent, "print('here')") == "here"


async def check_a_persistent_workspace_outlives_stop(subject: Subject) -> None:
    """After stop and start the files are there, and the variables, which live in memory, are not."""
    spec = subject.make_spec(storage=Storage.PERSISTENT)
    handle = await subject.engine.create(spec)
    try:
        async with subject.agent(handle) as agent:
            await run(agent, "x = 1; open('kept.txt', 'w').write('still here')")
        await subject.engine.stop(handle)
        await subject.engine.stop(handle)
        await refused(SandboxLost, subject.engine.connect(handle))
        handle = await subject.engine.start(handle, spec)

        async with subject.agent(handle) as agent:
            assert await text_file(agent, "kept.txt") == "still here"
            assert await printed(agent, "print('x' in globals())") == "False"
    finally:
        await subject.engine.destroy(handle)


async def check_an_ephemeral_workspace_is_gone_after_stop(subject: Subject) -> None:
    """Whether or not an engine starts it again, the files of an ephemeral sandbox do not come back."""
    spec = subject.make_spec(storage=Storage.EPHEMERAL)
    handle = await subject.engine.create(spec)
    try:
        async with subject.agent(handle) as agent:
            await run(agent, "open('gone.txt', 'w').write('for now')")
        await subject.engine.stop(handle)
        try:
            handle = await subject.engine.start(handle, spec)
        except Error:
            return
        async with subject.agent(handle) as agent:
            assert await printed(agent, "import os; print(os.path.exists('gone.txt'))") == "False"
    finally:
        await subject.engine.destroy(handle)


async def check_starting_a_running_sandbox_is_a_conflict(subject: Subject) -> None:
    """Start is for stopped ones; a running one keeps its variables."""
    spec = subject.make_spec(storage=Storage.PERSISTENT)
    async with subject.sandbox(storage=Storage.PERSISTENT, id=spec.id) as handle, subject.agent(handle) as agent:
        await run(agent, "x = 5")
        await refused(Conflict, subject.engine.start(handle, spec))

        assert await printed(agent, "print(x)") == "5"


async def check_destroy_is_idempotent(subject: Subject) -> None:
    """Destroyed twice, or never made: it is gone, is not listed, and its id can be used again."""
    spec = subject.make_spec()
    handle = await subject.engine.create(spec)
    await subject.engine.destroy(handle)
    await subject.engine.destroy(handle)
    await subject.engine.destroy(_unknown(subject))

    assert spec.id not in await subject.listed()
    await refused(SandboxLost, subject.engine.connect(handle))
    await subject.engine.destroy(await subject.engine.create(spec))


async def check_an_unknown_handle_is_lost(subject: Subject) -> None:
    """Every operation except destroy raises SandboxLost."""
    engine, handle = subject.engine, _unknown(subject)

    await refused(SandboxLost, engine.connect(handle))
    await refused(SandboxLost, engine.stop(handle))
    await refused(SandboxLost, engine.usage(handle))
    await refused(SandboxLost, engine.resize(handle, Limits()))
    await refused(SandboxLost, engine.start(handle, subject.make_spec(storage=Storage.PERSISTENT)))


async def check_handles_lists_running_and_stopped(subject: Subject) -> None:
    """Every sandbox is listed, running or not, also by an engine object that made none of them."""
    async with subject.sandbox() as running, subject.sandbox(storage=Storage.PERSISTENT) as stopped:
        await subject.engine.stop(stopped)
        ids = {running.sandbox_id, stopped.sandbox_id}
        async with subject.another_engine() as other:
            assert ids <= await subject.listed()
            assert ids <= await subject.listed(other)


async def check_handles_know_their_storage_and_their_store(subject: Subject) -> None:
    """What a spec says of both is listed with its sandbox, also by another engine; a start replaces the store."""
    spec = subject.make_spec(storage=Storage.PERSISTENT, store_id="0" * 32)
    kept = await subject.engine.create(spec)
    try:
        async with subject.sandbox(storage=Storage.EPHEMERAL, store_id="1" * 32) as fleeting:
            assert await _list_known(subject.engine, kept) == (Storage.PERSISTENT, "0" * 32)
            async with subject.another_engine() as other:
                assert await _list_known(other, fleeting) == (Storage.EPHEMERAL, "1" * 32)
        await subject.engine.stop(kept)
        assert await _list_known(subject.engine, kept) == (Storage.PERSISTENT, "0" * 32)
        await subject.engine.start(kept, replace(spec, store_id="2" * 32))
        assert await _list_known(subject.engine, kept) == (Storage.PERSISTENT, "2" * 32)
    finally:
        await subject.engine.destroy(kept)


async def check_the_reach_is_that_of_the_data(subject: Subject) -> None:
    """It is not empty, and the same for every engine over the same data."""
    async with subject.another_engine() as other:
        assert subject.engine.reach
        assert other.reach == subject.engine.reach


async def check_another_engine_adopts_running_sandboxes(subject: Subject) -> None:
    """A second engine object over the same data connects, and the variables are there."""
    async with subject.sandbox() as handle:
        async with subject.agent(handle) as agent:
            await run(agent, "x = 'adopted'")
        async with subject.another_engine() as other, subject.agent(handle, other) as agent:
            assert await printed(agent, "print(x)") == "adopted"

        async with subject.agent(handle) as agent:
            assert await printed(agent, "print(x)") == "adopted"


async def check_an_execution_outlives_its_connection(subject: Subject) -> None:
    """A call that runs while its connection drops is found finished, with its output, by the next one."""
    asked = request(
        "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.005)\nprint('last')"
    )
    async with subject.sandbox() as handle:
        async with subject.agent(handle) as agent, contextlib.aclosing(agent.stream(asked)) as events:
            async for event in events:
                if event.kind == "stdout":
                    break
        async with subject.agent(handle) as agent:
            await agent.write("go", b"")
            results = [event.result async for event in agent.attach(asked.id) if event.kind == "result"]

        assert len(results) == 1
        assert results[0] is not None
        assert results[0].ok
        assert results[0].stdout == b"first\nlast\n"


async def check_a_dead_agent_ends_its_channels(subject: Subject) -> None:
    """When the agent dies every channel ends, new connections are SandboxLost, and destroy still removes it."""
    async with subject.sandbox() as handle:
        channel = await subject.engine.connect(handle)
        await channel.receive()
        await subject.kill_agent(handle)
        while await channel.receive():
            pass
        await channel.aclose()

        await _wait_until_lost(subject, handle)
    assert handle.sandbox_id not in await subject.listed()


async def check_twenty_are_created_at_once(subject: Subject) -> None:
    """Concurrent creates all succeed, and each sandbox is its own."""
    seen: list[str] = []

    async def one() -> None:
        async with subject.sandbox() as handle, subject.agent(handle) as agent:
            result = await run(agent, f"me = {handle.sandbox_id!r}; print(me, end='')")
            assert result.stdout.decode() == handle.sandbox_id
            seen.append(handle.sandbox_id)

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(one)

    assert len(set(seen)) == 20


async def check_an_image_that_is_not_there_is_refused(subject: Subject) -> None:
    """One sentence names the image, and nothing of the sandbox is left."""
    image = Image(name="nowhere", digest="0" * 64, path="/nonexistent/image", interpreter_prefix="/usr")
    spec = subject.make_spec(image=image)
    message = await refused(Error, subject.engine.create(spec))

    assert "nowhere" in message, message
    assert spec.id not in await subject.listed()


async def check_nonsense_limits_are_refused(subject: Subject) -> None:
    """Impossible limits are refused with the field and its range, and nothing is made."""
    before = await subject.listed()
    for fields in ({"memory_bytes": 1}, {"cpus": 0}, {"pids": -1}, {"disk_bytes": 10**30}, {"cpus": float("nan")}):
        try:
            subject.make_spec(limits=Limits(**fields))
        except InvalidRequest as exc:
            assert next(iter(fields)) in str(exc)
        else:
            raise AssertionError(f"{fields} was accepted")

    assert await subject.listed() == before


async def check_usage_counts_what_is_used(subject: Subject) -> None:
    """The counters of the operating system agree with the use of a cell, where the engine has them."""
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await run(agent, f"held = bytes(range(256)) * {96 * MIB // 256}\nopen('big', 'wb').write(held[:{8 * MIB}])")
        await run(agent, "sync", ExecKind.SHELL)
        usage = await subject.engine.usage(handle)

        assert usage.memory_bytes is None or 96 * MIB <= usage.memory_bytes <= 512 * MIB
        assert usage.memory_peak_bytes is None or usage.memory_peak_bytes >= 96 * MIB
        assert usage.cpu_us is None or 0 < usage.cpu_us < 600_000_000
        assert usage.pids is None or 1 <= usage.pids <= 64
        assert usage.disk_bytes is None or 8 * MIB <= usage.disk_bytes <= 64 * MIB
        assert usage.disk_inodes is None or usage.disk_inodes >= 1


async def _wait_until_lost(subject: Subject, handle: Handle) -> None:
    """Connect until it raises SandboxLost. A dying process accepts connections for an instant, without answers."""
    with anyio.fail_after(DEADLINE_S):
        while True:
            try:
                channel = await subject.engine.connect(handle)
            except SandboxLost:
                return
            said = await channel.receive()
            await channel.aclose()
            assert said == b"", "something answers in the place of a dead agent"
            await anyio.sleep(0.01)


async def _list_known(engine: Engine, handle: Handle) -> tuple[Storage | None, str]:
    """Return what an engine lists of a sandbox."""
    (found,) = [each async for each in engine.handles() if each == handle]
    return found.storage, found.store_id


def _unknown(subject: Subject) -> Handle:
    return Handle(subject.engine.name, new_id("sbx"))
