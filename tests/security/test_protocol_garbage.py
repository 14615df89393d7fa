"""A program sends the agent what no kernel sends: broken frames, odd descriptors, floods, signals."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from security.arena import ROOTLESS, explained, program, revive, stands
from warren.domain.values import Cause, ExecKind, Limits, State
from warren.testing.subject import printed, run

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient
    from warren.domain.values import ExecResult
    from warren.testing.subject import Subject

pytestmark = pytest.mark.anyio

BROKEN_FRAMES = {
    "noise": "os.urandom(4096)",
    "zeros": "bytes(4096)",
    "a header longer than allowed": "struct.pack('>II', 1 << 20, 0) + b'{}'",
    "a payload longer than allowed": "struct.pack('>II', 2, 1 << 31) + b'{}'",
    "the longest lengths": "b'\\xff' * 8",
    "half a frame": "done(OWN)[:20]",
    "a header that never comes": "struct.pack('>II', 60000, 4 << 20)",
    "no JSON": "frame(b'not json')",
    "a list": "frame([1, 2])",
    "no type": "frame({'exec': OWN})",
    "a type that is a number": "frame({'t': 1})",
    "an unknown type": "frame({'t': 'hello', 'exec': OWN})",
    "a type of the gateway's": "frame({'t': 'req', 'id': 1, 'op': 'run', 'exec': OWN})",
    "deep JSON": "frame(b'{\"t\": ' + b'[' * 30000 + b']' * 30000 + b'}')",
    "not a number": 'frame(b\'{"t": "done", "exit_code": NaN}\')',
    "an infinite number": 'frame(b\'{"t": "done", "exit_code": 1e999}\')',
    "a number of a thousand digits": "frame(b'{\"t\": \"done\", \"id\": ' + b'9' * 4000 + b'}')",
    "half a character": 'frame(b\'{"t": "\\xff\\xfe"}\')',
    "surrogates": 'frame(b\'{"t": "display", "exec": "\\\\ud800", "display": "result"}\', b\'{}\')',
    "an execution that is a list": "frame({'t': 'done', 'exec': [OWN], 'status': 'ok'})",
    "no execution": "frame({'t': 'done', 'status': 'ok'})",
    "a status that is none": "done(OWN, status='fine')",
    "a status that is a list": "done(OWN, status=['ok'])",
    "an exit code that is text": "done(OWN, status='exit', exit_code='0')",
    "an exit code out of range": "done(OWN, status='exit', exit_code=10**6)",
    "an error that is text": "done(OWN, status='error', error='bad')",
    "an error of numbers": "done(OWN, status='error', error={'name': 1, 'value': [], 'traceback': {}})",
    "an error as large as a header": "done(OWN, status='error', error={'name': 'E', 'value': 'x' * 60000})",
    "a display that is no JSON": "frame({'t': 'display', 'exec': OWN, 'display': 'result'}, b'\\xff')",
    "a display of deep JSON": "frame({'t': 'display', 'exec': OWN, 'display': 'result'}, b'[' * 100000)",
    "a display without data": "frame({'t': 'display', 'exec': OWN, 'display': 'result'}, b'{\"data\": 1}')",
    "a display of a thousand types": (
        "frame({'t': 'display', 'exec': OWN, 'display': 'result'}, "
        "json.dumps({'data': {str(n): 'x' for n in range(1000)}}).encode())"
    ),
    "a frozen copy without a descriptor": "frame({'t': 'frozen', 'exec': OWN, 'pid': os.getpid(), 'private_bytes': 0})",
    "a frozen copy that is the agent": "frame({'t': 'frozen', 'exec': OWN, 'pid': 1, 'private_bytes': 0})",
    "a frozen copy without a process": "frame({'t': 'frozen', 'exec': OWN, 'pid': -1, 'private_bytes': 0})",
    "a frozen copy of text": "frame({'t': 'frozen', 'exec': OWN, 'pid': 'x', 'private_bytes': None})",
    "up, again and again": "frame({'t': 'up', 'executor': ['x']}) * 100",
    "a cold start that says no reason": "frame({'t': 'up', 'cold': True, 'why': 5})",
    "unprotected without a reason": "frame({'t': 'unprotected', 'exec': OWN, 'why': []})",
}


async def attack(agent: AgentClient, code: str, **fields: Any) -> ExecResult:
    return await run(agent, f"{program('forge')}\n{code}", **{"timeout_s": 30, **fields})


async def test_a_broken_frame_costs_that_kernel_at_most(subject: Subject) -> None:
    """Each in a kernel of its own; whatever becomes of it, the agent answers and variables of others are kept."""
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'kept'")
        for name, data in BROKEN_FRAMES.items():
            with anyio.fail_after(30):
                result = await attack(agent, f"say({data})", kernel="attacker", timeout_s=3, grace_s=0.1)
            assert result.cause in (Cause.EXITED, Cause.ERROR, Cause.KILLED, Cause.TIMEOUT), (name, result)
            assert result.ok or explained(result), (name, result)
            with anyio.fail_after(30):
                after = await run(agent, "print('own answer')", kernel="attacker", timeout_s=3, grace_s=0.1)
            assert after.stdout in (b"own answer\n", b""), (name, after)
            assert after.stdout or not after.ok, (name, after)
            await agent.delete_kernel("attacker")
        assert await printed(agent, "print(x)") == "kept"
        await stands(subject, handle)


async def test_odd_descriptors_are_closed_and_counted(subject: Subject, data_dir: str) -> None:
    """Folders, devices, pipes, epolls, the socket itself, in numbers: none stays open in the agent."""
    code = (
        "import select\n"
        "odd = [os.open('/', os.O_RDONLY), os.open('/dev/zero', os.O_RDONLY), *os.pipe(), select.epoll().fileno(),\n"
        "       os.memfd_create('m'), os.eventfd(0), socket.socket().detach(), sockets()[0],\n"
        "       os.open('/proc/self/mem', os.O_RDONLY), os.open('/dev/ptmx', os.O_RDWR)]\n"
        "for fd in odd:\n"
        "    for pid in (os.getpid(), 1, os.getppid(), 2, 3, 4):\n"
        "        say(frame({'t': 'frozen', 'exec': OWN, 'pid': pid, 'private_bytes': 0}), [fd])\n"
        "        say(frame({'t': 'frozen', 'exec': 'copy-1', 'pid': pid, 'private_bytes': 0}), [fd, fd, fd])\n"
        "        say(frame({'t': 'display', 'exec': OWN, 'display': 'x'}), [fd] * 4)\n"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'kept'")
        await run(agent, "y = 'kept'", kernel="attacker")
        before = None if ROOTLESS else _count_descriptors(data_dir, handle.sandbox_id)
        for _ in range(5):
            await attack(agent, code, kernel="attacker", timeout_s=5)
            await agent.restart_kernel("attacker")
        assert await printed(agent, "print(x)") == "kept"
        if before is not None:
            assert _count_descriptors(data_dir, handle.sandbox_id) <= before + 8
        await stands(subject, handle)


async def test_a_claimed_copy_does_not_let_a_kernel_kill_another(subject: Subject) -> None:
    """A claimed copy that is really another kernel, its copy, a shell or the forkserver would be killed on rollback."""
    code = (
        "pids = [int(name) for name in os.listdir('/proc') if name.isdigit()]\n"
        "ours, theirs = socket.socketpair()\n"
        "for pid in pids:\n"
        "    for name in (OWN, 'copy-1', 'copy-2'):\n"
        "        say(frame({'t': 'frozen', 'exec': name, 'pid': pid, 'private_bytes': 0}), [theirs.fileno()])\n"
        "say(done(OWN))\n"
        "for pid in pids:\n"
        "    say(frame({'t': 'frozen', 'exec': OWN, 'pid': pid, 'private_bytes': 0}), [theirs.fileno()])\n"
        "os.kill(os.getpid(), 9)"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'kept'")
        await run(agent, "(sleep 600) & echo started", ExecKind.SHELL)
        for _ in range(3):
            await attack(agent, code, kernel="attacker", timeout_s=5)
            await run(agent, "1", kernel="attacker", timeout_s=10)
        assert await printed(agent, "print(x)") == "kept"
        background = await run(agent, "pgrep -c sleep || ls /proc | wc -l", ExecKind.SHELL)
        assert background.ok
        await stands(subject, handle)


async def test_a_flood_that_outlives_its_kernel_does_not_hold_the_agent(subject: Subject) -> None:
    """The kernel dies while children that hold its socket go on sending, frames and descriptors."""
    code = (
        "import signal\n"
        "kept = os.dup(sockets()[0])\n"
        "null = os.open('/dev/null', os.O_RDONLY)\n"
        "data = frame({'t': 'frozen', 'exec': 'none', 'pid': 2, 'private_bytes': 0})\n"
        "for _ in range(24):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        sock = socket.socket(fileno=kept)\n"
        "        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [null]))]\n"
        "        while True:\n"
        "            try: sock.sendmsg([data], rights)\n"
        "            except BrokenPipeError: os._exit(0)\n"
        "            except OSError: pass\n"
        "import time; time.sleep(0.2)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    async with subject.sandbox(limits=Limits(cpus=4)) as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'kept'")
        with anyio.fail_after(20):
            result = await attack(agent, code, kernel="attacker", timeout_s=10)
        assert result.cause in (Cause.KILLED, Cause.TIMEOUT), result
        assert await printed(agent, "print(x)") == "kept"
        await stands(subject, handle)


async def test_closing_or_hiding_the_control_socket_loses_that_kernel_only(subject: Subject) -> None:
    hidden = (
        "fd = sockets()[0]; kept = os.dup(fd)\n"
        "import subprocess; subprocess.Popen(['sleep', '600'], pass_fds=[kept])\n"
        "os.dup2(os.open('/dev/null', os.O_RDWR), fd); os.close(kept)"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'kept'")
        for code in ("os.close(sockets()[0])", "os.closerange(3, 4096)", hidden, "os.closerange(0, 4096)"):
            with anyio.fail_after(30):
                result = await attack(agent, code, kernel="attacker", timeout_s=3, grace_s=0.1)
            assert result.cause in (Cause.KILLED, Cause.TIMEOUT, Cause.ERROR, Cause.EXITED), (code, result)
            assert (await run(agent, "print('own')", kernel="attacker", timeout_s=10)).stdout in (b"own\n", b"")
        assert await printed(agent, "print(x)") == "kept"
        await stands(subject, handle)


async def test_no_signal_ends_the_agent(subject: Subject) -> None:
    code = (
        "import os, signal\n"
        "for number in range(1, 65):\n"
        "    for send in (os.kill, lambda pid, n: signal.pidfd_send_signal(os.pidfd_open(pid), n)):\n"
        "        for _ in range(3):\n"
        "            try: send(1, number)\n"
        "            except OSError: pass\n"
        "print('sent')"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'kept'")
        for kind in (ExecKind.CELL, ExecKind.SCRIPT):
            assert (await run(agent, code, kind, timeout_s=20)).stdout == b"sent\n"
        assert await printed(agent, "print(x)") == "kept"
        await stands(subject, handle)


@pytest.mark.parametrize("number", ["KILL", "STOP", "TERM", "SEGV", "HUP", "USR1"])
async def test_signals_to_everybody_leave_a_sandbox_that_answers(subject: Subject, number: str) -> None:
    """Kernel, copies, forkserver and file workers all belong to the program's user; it may signal all of them."""
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'before'")
        for _ in range(2):
            with anyio.fail_after(30):
                await run(agent, f"kill -{number} -1; true", ExecKind.SHELL, timeout_s=5, grace_s=0.1)
        with anyio.fail_after(60):
            result = await run(agent, "print(1)", timeout_s=5, grace_s=0.1)
        assert result.ok or explained(result), result
        await revive(agent)
        await stands(subject, handle)


async def test_a_stopped_kernel_is_rolled_back_in_time(subject: Subject) -> None:
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'before'")
        with anyio.fail_after(20):
            result = await run(
                agent, "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", timeout_s=3, grace_s=0.2
            )
        assert (result.cause, result.state) == (Cause.TIMEOUT, State.ROLLED_BACK)
        assert await printed(agent, "print(x)") == "before"
        await stands(subject, handle)


async def test_killing_the_forkserver_again_and_again_is_survived(subject: Subject) -> None:
    hunt = (
        "import os, signal, time\n"
        "end = time.monotonic() + 3\n"
        "while time.monotonic() < end:\n"
        "    for name in os.listdir('/proc'):\n"
        "        if name.isdigit() and int(name) not in (1, os.getpid()):\n"
        "            try: os.kill(int(name), signal.SIGKILL)\n"
        "            except OSError: pass\n"
    )
    async with subject.sandbox(limits=Limits(cpus=1)) as handle, subject.agent(handle) as agent:
        await answers_somehow(agent)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: run(agent, hunt, timeout_s=10))
            for _ in range(20):
                with anyio.fail_after(30):
                    await run(agent, "print(1)", ExecKind.SCRIPT, timeout_s=3)
        await revive(agent)
        await stands(subject, handle)


async def answers_somehow(agent: AgentClient) -> None:
    assert (await run(agent, "1")).ok


def _count_descriptors(data_dir: str, sandbox_id: str) -> int:
    with open(os.path.join(data_dir, "local", "sandboxes", sandbox_id, "record.json"), encoding="utf-8") as file:
        pid = json.load(file)["pid"]
    return len(os.listdir(f"/proc/{pid}/fd"))
