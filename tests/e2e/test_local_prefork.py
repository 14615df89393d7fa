"""The process that is ready before anybody asks for a sandbox: who gets it, who does not, and that it never stays."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from e2e.story import Story, run
from warren.domain.errors import Conflict
from warren.domain.values import Limits, Storage
from warren.engines import procfs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  (no event tells of the end of a foreign process)
        await anyio.sleep(0.01)


def has_ended(record: Mapping[str, Any]) -> Callable[[], bool]:
    return lambda: not procfs.is_alive(record["pid"], record["start_time"])


def test_the_next_process_of_an_image_is_ready_before_a_create_and_is_no_sandbox(tell: Any) -> None:
    async def story(s: Story) -> None:
        first = await s.engine.create(s.spec())
        ready = await s.next_one()
        listed = [handle async for handle in s.engine.handles()]
        second = await s.engine.create(s.spec(env={"COLOUR": "red"}, limits=Limits(cpus=0.5)))
        said = await run(s.engine, second, "import os; print(os.environ['COLOUR'], os.getcwd(), os.getpid() > 1)")

        assert listed == [first]
        assert s.pid(second) == ready["pid"]
        assert said.stdout == b"red /workspace True\n"
        assert (await s.engine.usage(second)).disk_bytes is not None

    tell(story)


def test_one_that_was_ready_is_a_sandbox_like_any_other(tell: Any) -> None:
    async def story(s: Story) -> None:
        await s.engine.create(s.spec())
        ready = await s.next_one()
        handle = await s.engine.create(s.spec())
        await run(s.engine, handle, "x = 41")
        os.kill(s.keeper_pid, signal.SIGKILL)
        found = await run(s.engine, handle, "print(x + 1)")
        listed = [found.sandbox_id async for found in s.engine.handles()]
        await s.engine.destroy(handle)

        assert found.stdout == b"42\n"
        assert handle.sandbox_id in listed
        assert has_ended(ready)()
        assert not (s.folder / "local" / "sandboxes" / handle.sandbox_id).exists()

    tell(story)


@pytest.mark.parametrize(
    "limits",
    [
        Limits(memory_bytes=300 << 20),
        Limits(open_files=1000),
        Limits(pids=77),
        Limits(disk_bytes=64 << 20),
        Limits(disk_inodes=5000),
    ],
)
def test_a_process_with_other_bounds_is_not_used(tell: Any, limits: Limits) -> None:
    async def story(s: Story) -> None:
        await s.engine.create(s.spec())
        ready = await s.next_one()
        handle = await s.engine.create(s.spec(limits=limits))
        disk = await run(s.engine, handle, "import os; s = os.statvfs('.'); print(s.f_blocks * s.f_frsize)")

        assert s.pid(handle) != ready["pid"]
        assert int(disk.stdout) <= limits.disk_bytes * 1.2

    tell(story)


def test_a_create_that_it_does_not_fit_gets_another(tell: Any) -> None:
    async def story(s: Story) -> None:
        await s.engine.create(s.spec())
        ready = await s.next_one()
        small = await s.engine.create(s.spec(limits=Limits(open_files=200)))
        said = await run(s.engine, small, "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[1])")

        assert s.pid(small) != ready["pid"]
        assert said.stdout == b"200\n"

    tell(story)


def test_a_workspace_that_stays_is_never_one_that_was_ready(tell: Any) -> None:
    async def story(s: Story) -> None:
        if os.geteuid() != 0:
            return  # Without root there are no persistent workspaces with a quota.
        await s.engine.create(s.spec())
        ready = await s.next_one()
        kept = await s.engine.create(s.spec(storage=Storage.PERSISTENT))

        assert s.pid(kept) != ready["pid"]
        # Beside it, by now or soon, there is one for the next that stays.
        assert ready["pid"] in [each["pid"] for each in s.next_ones()]

    tell(story)


def test_of_many_that_ask_at_once_one_gets_it_and_none_shares_anything(tell: Any) -> None:
    async def story(s: Story) -> None:
        await s.engine.create(s.spec())
        ready = await s.next_one()
        made = []

        async def one() -> None:
            made.append(await s.engine.create(s.spec()))

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(one)
        code = "import os, random, uuid; open('mine', 'x'); print(random.random(), uuid.uuid4())"
        said = {(await run(s.engine, handle, code)).stdout for handle in made}

        assert [s.pid(handle) for handle in made].count(ready["pid"]) == 1
        assert len(said) == 4

    tell(story)


def test_it_ends_with_a_killed_keeper_and_the_next_keeper_removes_what_it_left(tell: Any) -> None:
    async def story(s: Story) -> None:
        await s.engine.create(s.spec())
        ready = await s.next_one()
        os.kill(s.keeper_pid, signal.SIGKILL)
        await until(has_ended(ready))
        await s.engine.close()
        await s.engine.open()

        assert os.listdir(s.folder / "local" / "births") == []
        assert not [base for base, _, _ in os.walk("/sys/fs/cgroup") if base.endswith("/" + ready["group"])]

    tell(story)


def test_it_ends_with_its_zygote(tell: Any) -> None:
    async def story(s: Story) -> None:
        await s.engine.create(s.spec())
        ready = await s.next_one()
        os.kill(s.zygote_pid, signal.SIGKILL)
        await until(has_ended(ready))
        handle = await s.engine.create(s.spec())

        assert s.pid(handle) != ready["pid"]
        assert (await run(s.engine, handle, "print(1)")).stdout == b"1\n"

    tell(story)


def test_it_ends_when_the_keeper_retires_though_sandboxes_live_on(tell: Any) -> None:
    async def story(s: Story) -> None:
        handle = await s.engine.create(s.spec())
        ready = await s.next_one()
        await s.engine.retire()

        assert has_ended(ready)()
        assert not (s.folder / "local" / "births").exists()
        assert (await run(s.engine, handle, "print(1)")).stdout == b"1\n"

    tell(story)


def test_one_that_died_is_noticed_and_another_is_made(tell: Any) -> None:
    async def story(s: Story) -> None:
        await s.engine.create(s.spec())
        ready = await s.next_one()
        os.kill(ready["pid"], signal.SIGKILL)
        await until(has_ended(ready))
        handle = await s.engine.create(s.spec())
        said = await run(s.engine, handle, "print(1)")
        await until(lambda: not os.path.exists(s.folder / "local" / "births" / ready["id"]))
        again = await s.next_one()

        assert said.stdout == b"1\n"
        assert s.pid(handle) != ready["pid"]
        assert again["pid"] != ready["pid"]

    tell(story)


def test_a_name_that_is_taken_is_refused_and_costs_it_nothing(tell: Any) -> None:
    async def story(s: Story) -> None:
        spec = s.spec()
        await s.engine.create(spec)
        ready = await s.next_one()
        with pytest.raises(Conflict, match="exists already"):
            await s.engine.create(spec)
        handle = await s.engine.create(s.spec())

        assert s.pid(handle) == ready["pid"]

    tell(story)


def test_one_is_ready_for_each_kind_of_storage_and_a_persistent_one_keeps_its_files(tell: Any) -> None:
    async def story(s: Story) -> None:
        await s.engine.create(s.spec(storage=Storage.PERSISTENT))
        ready = await s.next_one()
        other = await s.engine.create(s.spec())
        spec = s.spec(storage=Storage.PERSISTENT)
        handle = await s.engine.create(spec)
        claimed = s.pid(handle)
        await run(s.engine, handle, "open('kept.txt', 'w').write('kept')")
        await s.engine.stop(handle)
        await s.engine.start(handle, spec)

        assert (claimed, s.pid(other) == ready["pid"]) == (ready["pid"], False)
        assert (await run(s.engine, handle, "print(open('kept.txt').read())")).stdout == b"kept\n"

    tell(story)
