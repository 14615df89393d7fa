"""A program takes all the memory it can get, in every way there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from security.arena import ROOTLESS, answers, explained, stands
from warren.domain.errors import SandboxLost
from warren.domain.values import MIB, Cause, ExecKind, Limits, State
from warren.testing.subject import printed, run

if TYPE_CHECKING:
    from warren.testing.subject import Subject

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        ROOTLESS,
        reason="without a delegated control group memory is not limited: creating a sandbox is refused unless the "
        "operator gave the layer up (test_fail_closed.py), and then there is no limit to test",
    ),
]

LIMIT = 192 * MIB
LIMITS = Limits(memory_bytes=LIMIT, checkpoint_bytes=32 * MIB)

BOMBS = {
    "heap": "hog = []\nwhile True: hog.append(bytearray(8 << 20))",
    "shared mapping": (
        "import mmap\nhog = []\nwhile True:\n    m = mmap.mmap(-1, 8 << 20); m.write(b'x' * (8 << 20)); hog.append(m)"
    ),
    "memfd": ("import os\nfd = os.memfd_create('hog')\nblock = b'x' * (1 << 20)\nwhile True: os.write(fd, block)"),
    "System V memory": (
        "import ctypes\nlibc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p\n"
        "while True:\n    at = libc.shmat(libc.shmget(0, 8 << 20, 0o1600), None, 0)\n    ctypes.memset(at, 1, 8 << 20)"
    ),
    "message queues": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nblock = (8).to_bytes(8, 'little') + bytes(8000)\n"
        "for _ in range(30_000):\n"
        "    queue = libc.msgget(0, 0o1600)\n"
        "    while libc.msgsnd(queue, block, 8000, 0o4000) == 0: pass\n"
        "hog = []\nwhile True: hog.append(bytearray(8 << 20))"
    ),
    "semaphores": (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "for _ in range(30_000): libc.semget(0, 32_000, 0o1600)\n"
        "hog = []\nwhile True: hog.append(bytearray(8 << 20))"
    ),
    "files in memory, then heap": (
        "import shutil\n"
        "for folder in ('/tmp', '/dev/shm'):\n"
        "    try:\n"
        "        with open(folder + '/hog', 'wb', buffering=0) as f:\n"
        "            while f.write(b'x' * (1 << 20)): pass\n"
        "    except OSError: pass\n"
        "hog = []\nwhile True: hog.append(bytearray(4 << 20))"
    ),
    "a long string": "s = 'x'\nwhile True: s += s",
    "small objects": "hog = []\nwhile True: hog.append([object() for _ in range(10000)])",
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_memory_bomb_is_ended_and_named_and_variables_stay(subject: Subject, bomb: str) -> None:
    async with subject.sandbox(limits=LIMITS) as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'before'")
        result = await run(agent, f"x = 'spoilt'\nprint('lit', flush=True)\n{BOMBS[bomb]}", timeout_s=60)

        assert result.cause in (Cause.OOM, Cause.ERROR), result
        if result.cause is Cause.ERROR:
            # One allocation larger than everything is refused, not killed.
            assert result.error is not None
            assert result.error["name"] == "MemoryError"
        else:
            assert result.state is State.ROLLED_BACK
            assert result.limit == LIMIT
            assert result.peak is not None
            assert result.peak >= LIMIT * 0.8
            assert await printed(agent, "print(x)") == "before"
        assert result.stdout == b"lit\n"
        assert explained(result)
        usage = await subject.engine.usage(handle)
        assert usage.memory_peak_bytes is not None
        assert usage.memory_peak_bytes <= LIMIT + 2 * LIMITS.checkpoint_bytes + 64 * MIB
        await run(agent, "rm -f /tmp/hog /dev/shm/hog", ExecKind.SHELL)
        await stands(subject, handle)


async def test_memory_of_the_kernel_is_counted_too(subject: Subject) -> None:
    """Pipes, sockets and descriptors in flight are the operating system's memory, held by a program's wish."""
    code = (
        "import fcntl, os, resource, socket\n"
        "held = []\n"
        "def fill(make, write):\n"
        "    try:\n"
        "        while len(held) < 1500:\n"
        "            pair = make(); held.append(pair)\n"
        "            try:\n"
        "                while write(pair): pass\n"
        "            except (BlockingIOError, OSError): pass\n"
        "    except OSError: pass\n"
        "def pipe():\n"
        "    ends = os.pipe2(os.O_NONBLOCK)\n"
        "    try: fcntl.fcntl(ends[1], 1031, 1 << 20)\n"
        "    except OSError: pass\n"
        "    return ends\n"
        "def pair():\n"
        "    ends = socket.socketpair(); ends[0].setblocking(False); return ends\n"
        "fill(pair, lambda ends: ends[0].send(b'x' * 65536))\n"
        "fill(pipe, lambda ends: os.write(ends[1], b'x' * 65536))\n"
        "print('full')"
    )
    async with subject.sandbox(limits=LIMITS) as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'before'")
        result = await run(agent, code, ExecKind.SCRIPT, timeout_s=60)
        assert result.ok or (result.cause in (Cause.OOM, Cause.KILLED, Cause.ERROR) and explained(result)), result
        usage = await subject.engine.usage(handle)
        assert usage.memory_peak_bytes is not None
        assert usage.memory_peak_bytes <= LIMIT + 2 * LIMITS.checkpoint_bytes + 64 * MIB
        assert await printed(agent, "print(x)") == "before"
        await stands(subject, handle)


async def test_small_hogs_that_spare_themselves_harm_no_other_sandbox(subject: Subject) -> None:
    """Each is smaller than the agent and says that it should die last. The sandbox may be lost; nothing else is."""
    code = (
        "import os, time\n"
        "for _ in range(60):\n"
        "    if os.fork() == 0:\n"
        "        try: open('/proc/self/oom_score_adj', 'wb', 0).write(b'0')\n"
        "        except OSError: pass\n"
        "        hog = bytearray(6 << 20); hog[::4096] = b'x' * len(hog[::4096])\n"
        "        time.sleep(3); os._exit(0)\n"
        "try:\n"
        "    while True: os.wait()\n"
        "except ChildProcessError: pass"
    )
    async with subject.sandbox(limits=LIMITS) as handle:
        try:
            async with subject.agent(handle) as agent:
                await run(agent, code, ExecKind.SCRIPT, timeout_s=20, kill_leftovers=True)
            await stands(subject, handle)
        except SandboxLost:
            pass


async def test_children_that_take_all_memory_do_not_take_the_agent(subject: Subject) -> None:
    code = (
        "import subprocess, sys\n"
        "hogs = [subprocess.Popen([sys.executable, '-c', 'hog = [bytearray(4 << 20) for _ in range(10000)]'])\n"
        "        for _ in range(6)]\n"
        "print(sorted({hog.wait() for hog in hogs}))"
    )
    async with subject.sandbox(limits=LIMITS) as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'before'")
        result = await run(agent, code, timeout_s=60)

        assert result.cause in (Cause.EXITED, Cause.OOM, Cause.ERROR), result
        if result.ok:
            assert result.stdout == b"[-9]\n"
        assert await printed(agent, "print(x)") == "before"
        await stands(subject, handle)


async def test_a_bomb_in_a_shell_command_is_named_too(subject: Subject) -> None:
    async with subject.sandbox(limits=LIMITS) as handle, subject.agent(handle) as agent:
        bomb = "exec python -c 'hog = [bytearray(4 << 20) for _ in range(10000)]'"
        result = await run(agent, bomb, ExecKind.SHELL, timeout_s=60)

        assert (result.cause, result.state, result.limit) == (Cause.OOM, State.NONE, LIMIT)
        assert explained(result)
        await stands(subject, handle)


async def test_a_full_tmpfs_does_not_take_the_agent_with_it(subject: Subject) -> None:
    """Files in memory are bounded below the limit: a program that fills them gets an error, and is not killed."""
    code = (
        "import errno, os\n"
        "full = 0\n"
        "for folder in ('/tmp', '/dev/shm'):\n"
        "    try:\n"
        "        with open(folder + '/hog', 'wb', buffering=0) as f:\n"
        "            while f.write(b'x' * (1 << 20)): pass\n"
        "    except OSError as error: full += error.errno == errno.ENOSPC\n"
        "print(full)"
    )
    async with subject.sandbox(limits=LIMITS) as handle, subject.agent(handle) as agent:
        for _ in range(3):
            assert await printed(agent, code) == "2"
        await answers(agent)
        await stands(subject, handle)


async def test_a_program_that_fits_is_never_killed_by_a_checkpoint(subject: Subject) -> None:
    """60 MB of variables are copied when they change; ten times, and up to the limit beside it."""
    limit = 256 * MIB
    state, beside = 60 * MIB, 176 * MIB
    limits = Limits(memory_bytes=limit)
    async with subject.linked_sandbox(limits=limits) as agent:
        assert (await run(agent, f"state = bytearray({state})\nstate[::4096] = b'x' * len(state[::4096])")).ok
        for turn in range(10):
            result = await run(
                agent,
                f"state[::4096] = bytes([{turn}]) * len(state[::4096])\n"
                f"beside = bytearray({beside}); beside[::4096] = b'x' * len(beside[::4096])\n"
                "del beside\nprint(state[0])",
                timeout_s=60,
            )
            assert result.ok, (turn, result)
            assert result.stdout == b"%d\n" % turn
            assert result.protected, result.why_unprotected
