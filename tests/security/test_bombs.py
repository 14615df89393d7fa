"""A program takes all the processes, processor time, disk, files and descriptors it can get."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import anyio
import pytest

from security.arena import PROMPTLY_S, ROOTLESS, answers, explained, revive, stands
from warren.domain.values import MIB, Cause, ExecKind, Limits, Storage
from warren.testing.subject import printed, request, run

if TYPE_CHECKING:
    from warren.testing.subject import Subject

pytestmark = pytest.mark.anyio

_FORKS = {
    "a bomb of processes": (
        "import os, time\n"
        "try:\n"
        "    while True:\n"
        "        if os.fork() == 0: time.sleep(600)\n"
        "except OSError as error: raise SystemExit(str(error))"
    ),
    "a bomb that doubles": (
        "import os, time\nend = time.monotonic() + 2\n"
        "while time.monotonic() < end:\n"
        "    try: os.fork()\n"
        "    except OSError: pass\n"
    ),
    "a bomb of threads": (
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    ),
}
_SHELL_BOMB = "f() { f | f & }; f; sleep 1; echo over"


@pytest.mark.parametrize("bomb", _FORKS)
async def test_a_fork_bomb_stays_in_its_sandbox(subject: Subject, bomb: str) -> None:
    limits = Limits(pids=64)
    async with subject.sandbox(limits=limits) as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'before'")
        result = await run(agent, _FORKS[bomb], ExecKind.SCRIPT, timeout_s=30, kill_leftovers=True)
        assert result.cause in (Cause.PIDS, Cause.EXITED, Cause.TIMEOUT, Cause.KILLED, Cause.OOM), result
        if result.cause is Cause.PIDS:
            assert result.limit == limits.pids
        if not result.ok:
            assert explained(result)
        usage = await subject.engine.usage(handle)
        assert usage.pids is None or usage.pids <= limits.pids
        await run(agent, "kill -9 -1", ExecKind.SHELL, timeout_s=10)

        # Whatever else died, the agent answers and a kernel can be had.
        await revive(agent)
        await stands(subject, handle)


async def test_a_bomb_of_processes_is_named(subject: Subject) -> None:
    limits = Limits(pids=64)
    async with subject.linked_sandbox(limits=limits) as agent:
        result = await run(agent, _FORKS["a bomb of processes"], ExecKind.SCRIPT, timeout_s=30)
        if ROOTLESS:
            # Without a delegated control group the limit is RLIMIT_NPROC, of which the kernel keeps no count.
            assert not result.ok
        else:
            assert (result.cause, result.limit) == (Cause.PIDS, limits.pids)
        assert explained(result)


async def test_a_shell_fork_bomb_stays_in_its_sandbox(subject: Subject) -> None:
    async with subject.sandbox(limits=Limits(pids=64)) as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'before'")
        result = await run(agent, _SHELL_BOMB, ExecKind.SHELL, timeout_s=10, kill_leftovers=True)
        assert result.cause in (Cause.EXITED, Cause.PIDS, Cause.TIMEOUT), result
        await revive(agent)
        await stands(subject, handle)


@pytest.mark.skipif(ROOTLESS, reason="without a delegated control group processor time is not limited")
async def test_a_busy_program_gets_its_share_and_no_more(subject: Subject) -> None:
    """Four processes spin for two seconds in half a processor."""
    code = (
        "import os, time\nend = time.monotonic() + 2\n"
        "children = [os.fork() or os._exit(sum(1 for _ in iter(lambda: time.monotonic() < end, False)) * 0)\n"
        "            for _ in range(4)]\n"
        "for child in children: os.waitpid(child, 0)"
    )
    async with subject.sandbox(limits=Limits(cpus=0.5)) as handle, subject.agent(handle) as agent:
        await answers(agent)
        before = (await subject.engine.usage(handle)).cpu_us
        started = time.monotonic()
        result = await run(agent, code, ExecKind.SCRIPT, timeout_s=30)
        wall = time.monotonic() - started
        after = (await subject.engine.usage(handle)).cpu_us

        assert result.ok, result
        assert before is not None
        assert after is not None
        used = (after - before) / 1e6
        # A quota is given in slices of 100 ms; one more on either side may be on its way.
        assert used <= 0.5 * wall + 0.2
        assert used >= 0.2
        assert result.cpu_ms <= used * 1000 + 50


async def test_descriptors_run_out_for_the_program_only(subject: Subject) -> None:
    code = (
        "import os\nheld = []\n"
        "try:\n    while True: held.append(os.open('/dev/null', os.O_RDONLY))\n"
        "except OSError as error: print(error.errno)\n"
    )
    async with subject.sandbox(limits=Limits(open_files=256)) as handle, subject.agent(handle) as agent:
        assert await printed(agent, code) == "24"
        # The kernel has none left for the next cell's streams: it may be lost, the sandbox may not.
        await run(agent, "print(len(held))", timeout_s=10)
        async with subject.agent(handle) as second:
            await revive(second)
            await stands(subject, handle)


async def test_terminals_are_bounded_for_each_sandbox(subject: Subject) -> None:
    """All terminals of a host come from one number; a sandbox must not use it up."""
    code = (
        "import os\nheld = []\n"
        "try:\n    while len(held) < 2000: held.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))\n"
        "except OSError: pass\n"
        "print(len(held))"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        assert 0 < int(await printed(agent, code)) <= 128
        ours, theirs = os.openpty()
        os.close(ours)
        os.close(theirs)
        await stands(subject, handle)


async def test_hundreds_of_orphans_are_buried(subject: Subject) -> None:
    """Children whose parent is gone fall to the agent, which must bury them and go on answering."""
    code = (
        "import os\n"
        "for _ in range(300):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        if os.fork() == 0: os._exit(0)\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "print('left')"
    )
    async with subject.sandbox(limits=Limits(pids=64)) as handle, subject.agent(handle) as agent:
        result = await run(agent, code, ExecKind.SCRIPT, timeout_s=60)
        assert result.stdout == b"left\n" or result.cause is Cause.PIDS, result
        await stands(subject, handle)


async def test_a_storm_of_signals_does_not_stop_the_agent(subject: Subject) -> None:
    storm = (
        "import os, signal, time\nend = time.monotonic() + 2\nprint('storm', flush=True)\n"
        "while time.monotonic() < end:\n"
        "    for number in (signal.SIGUSR1, signal.SIGCHLD, signal.SIGRTMIN): os.kill(1, number)"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await answers(agent)
        async for event in agent.stream(request(storm, ExecKind.SCRIPT, timeout_s=20)):
            if event.kind == "stdout":
                await answers(agent)
            assert event.result is None or event.result.ok, event.result
        await stands(subject, handle)


async def test_a_full_disk_is_an_error_with_a_name(subject: Subject) -> None:
    limits = Limits(disk_bytes=32 * MIB)
    async with subject.sandbox(limits=limits) as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'before'")
        fill = "with open('hog', 'wb', buffering=0) as f:\n    while True: f.write(b'x' * (1 << 20))"
        result = await run(agent, fill, timeout_s=60)

        assert result.cause is Cause.DISK, result
        assert result.limit is not None
        # The limit is what files may take; the filesystem's own tables come on top.
        assert limits.disk_bytes <= result.limit <= limits.disk_bytes * 1.2
        assert result.peak is not None
        assert explained(result)
        assert await printed(agent, "print(x)") == "before"
        usage = await subject.engine.usage(handle)
        assert usage.disk_bytes is None or usage.disk_bytes <= limits.disk_bytes * 1.2
        await agent.delete("hog")
        await stands(subject, handle)


async def test_files_are_counted_too(subject: Subject) -> None:
    limits = Limits(disk_bytes=64 * MIB, disk_inodes=2048)
    async with subject.sandbox(limits=limits) as handle, subject.agent(handle) as agent:
        fill = "import os\nos.mkdir('many')\nfor n in range(100_000): open(f'many/{n}', 'w').close()"
        result = await run(agent, fill, timeout_s=60)

        assert result.cause is Cause.DISK, result
        assert explained(result)
        usage = await subject.engine.usage(handle)
        assert usage.disk_inodes is None or usage.disk_inodes <= limits.disk_inodes + 16
        await agent.delete("many", recursive=True)
        await stands(subject, handle)


async def test_inodes_in_memory_are_bounded(subject: Subject) -> None:
    fill = (
        "import os\nos.mkdir('/tmp/many')\n"
        "try:\n    for n in range(200_000): os.symlink('x', f'/tmp/many/{n}')\n"
        "except OSError as error: print(error.errno)"
    )
    async with subject.sandbox(limits=Limits(disk_inodes=4096)) as handle, subject.agent(handle) as agent:
        assert await printed(agent, fill) == "28"
        await run(agent, "rm -rf /tmp/many", ExecKind.SHELL)
        await stands(subject, handle)


async def test_a_sparse_giant_is_not_a_giant(subject: Subject) -> None:
    """A file that says it has a terabyte costs neither the host's disk nor the agent's time."""
    async with subject.sandbox(limits=Limits(disk_bytes=64 * MIB)) as handle, subject.agent(handle) as agent:
        made = await run(agent, "import os; os.truncate(os.open('sparse', os.O_RDWR | os.O_CREAT), 1 << 34)")
        assert made.ok or made.error is not None
        await answers(agent)
        usage = await subject.engine.usage(handle)
        assert usage.disk_bytes is None or usage.disk_bytes <= 64 * MIB
        await stands(subject, handle)


async def test_a_workspace_of_100_000_files_is_bearable(subject: Subject) -> None:
    make = (
        "import os\nfor folder in range(100):\n    os.mkdir(f'd{folder}')\n"
        "    for n in range(1000): os.close(os.open(f'd{folder}/{n}', os.O_CREAT | os.O_WRONLY))"
    )
    async with subject.sandbox(limits=Limits(disk_inodes=131_072)) as handle, subject.agent(handle) as agent:
        result = await run(agent, make, timeout_s=60)
        assert result.ok, result
        assert not result.files_changed_complete
        await answers(agent)
        with anyio.fail_after(PROMPTLY_S):
            entries, complete = await agent.list(".", recursive=True)
        assert not complete
        assert 1000 <= len(entries) <= 100_100
        await stands(subject, handle)
        with anyio.fail_after(30):
            await agent.delete("d0", recursive=True)


async def test_a_deep_tree_breaks_nothing(subject: Subject) -> None:
    """Deeper than any path can say: the agent lists it, packs it and deletes it."""
    make = "import os\nos.mkdir('deep'); os.chdir('deep')\nfor n in range(3000): os.mkdir('d'); os.chdir('d')\n"
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        assert (await run(agent, make + "os.chdir('/workspace')", timeout_s=60)).ok
        with anyio.fail_after(30):
            await agent.list("deep", recursive=True)
            async for _part in agent.pack("deep", "tar"):
                pass
            await agent.delete("deep", recursive=True)
        await stands(subject, handle)


@pytest.mark.skipif(ROOTLESS, reason="a persistent workspace has no disk quota without root, and is refused")
async def test_a_full_disk_survives_stop_and_start(subject: Subject) -> None:
    spec = subject.make_spec(storage=Storage.PERSISTENT, limits=Limits(disk_bytes=16 * MIB))
    handle = await subject.engine.create(spec)
    try:
        async with subject.agent(handle) as agent:
            fill = "open('kept', 'w').write('yes')\nwhile True: open('hog', 'ab').write(b'x' * (1 << 20))"
            assert (await run(agent, fill, timeout_s=60)).cause is Cause.DISK
        await subject.engine.stop(handle)
        handle = await subject.engine.start(handle, spec)
        async with subject.agent(handle) as agent:
            assert await agent.read_bytes("kept", 1000) == b"yes"
            await agent.delete("hog")
        await stands(subject, handle)
    finally:
        await subject.engine.destroy(handle)
