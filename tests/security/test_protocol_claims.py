"""A program speaks on its kernel's control socket, as the kernel, to the agent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from security.arena import answers, explained, program, stands
from warren.domain.errors import Conflict
from warren.domain.values import MIB, Cause, ExecKind, State
from warren.testing.subject import printed, request, run

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient
    from warren.domain.values import ExecResult
    from warren.testing.subject import Subject

pytestmark = pytest.mark.anyio


async def attack(agent: AgentClient, code: str, **fields: Any) -> ExecResult:
    """Run a cell that can speak on the control socket."""
    return await run(agent, f"{program('forge')}\n{code}", timeout_s=30, **fields)


async def test_the_control_socket_is_all_there_is_to_find(subject: Subject) -> None:
    """It can be found, which is why nothing said on it is a fact; no socket that accepts is there."""
    code = (
        "import errno\n"
        "listening = [fd for fd in sockets() if socket.socket(fileno=os.dup(fd)).getsockopt(1, socket.SO_ACCEPTCONN)]\n"
        "def accepts(fd):\n"
        "    try: socket.socket(fileno=os.dup(fd)).accept()\n"
        "    except OSError: return False\n"
        "    return True\n"
        "print(json.dumps([listening, [fd for fd in sockets() if accepts(fd)], len(sockets())]))"
    )
    async with subject.linked_sandbox() as agent:
        result = await attack(agent, code)

    assert result.ok, result
    listening, accepting, count = json.loads(result.stdout)
    assert (listening, accepting) == ([], [])
    assert count <= 1


async def test_a_forged_end_does_not_answer_the_next_call(subject: Subject) -> None:
    """A cell claims its own end, and that of others, and goes on; the next call gets its own answer or none."""
    code = (
        "for _ in range(50):\n"
        "    say(done(OWN, error={'name': 'Forged', 'value': 'stale', 'traceback': 'stale'}, status='error'))\n"
        "    say(done('exe_000000000000000000000000'))\n"
        "    say(frame({'t': 'display', 'exec': OWN, 'display': 'result'},\n"
        '              b\'{"data": {"text/plain": "stale"}}\'))\n'
        "import time; time.sleep(0.3)\nprint('stale')"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        for turn in range(5):
            await attack(agent, code)
            asked = request(f"print('mine {turn}'); {turn}", timeout_s=20)
            result = await agent.run(asked)

            assert result.id == asked.id
            if result.ok:
                assert result.stdout == f"mine {turn}\n".encode()
                assert [display.data.get("text/plain") for display in result.displays] == [str(turn)]
            else:
                assert result.cause in (Cause.KILLED, Cause.LOST)
            assert b"stale" not in result.stdout
            assert "stale" not in json.dumps(result.error)
        await stands(subject, handle)


async def test_a_thread_that_answers_for_later_cells_forges_no_fact(subject: Subject) -> None:
    """It claims the end of each later cell at once: output, exit of a process and files stay the agent's word."""
    lurk = (
        "import threading, time\n"
        "def lurk():\n"
        "    while True:\n"
        "        now = os.environ.get('WARREN_EXECUTION')\n"
        "        if now and now != OWN: say(done(now)); say(frame({'t': 'display', 'exec': now, 'display': 'result'},\n"
        '            b\'{"data": {"text/plain": "forged"}}\'))\n'
        "        time.sleep(0.0005)\n"
        "threading.Thread(target=lurk, daemon=True).start()"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await attack(agent, lurk)
        script = await run(agent, "print('truth'); raise SystemExit(7)", ExecKind.SCRIPT, timeout_s=20)
        shell = await run(agent, "echo truth > made; exit 3", ExecKind.SHELL, timeout_s=20)
        other = await run(agent, "print('truth'); 5", kernel="other", timeout_s=20)

        assert (script.exit_code, script.stdout, script.cause) == (7, b"truth\n", Cause.EXITED)
        assert (shell.exit_code, [change.path for change in shell.files_changed]) == (3, ["made"])
        assert (other.ok, other.stdout, len(other.displays)) == (True, b"truth\n", 1)
        assert other.displays[0].data["text/plain"] == "5"
        await agent.restart_kernel("main")
        await stands(subject, handle)


async def test_one_kernel_cannot_end_the_cell_of_another(subject: Subject) -> None:
    """It even knows the id: a claim counts only for what runs in the kernel that makes it."""
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await run(agent, "x = 1")
        waiting = request(
            "import os, time\nprint('go', flush=True)\nwhile not os.path.exists('end'): time.sleep(0.01)\nprint('end')"
        )
        seen: list[ExecResult] = []
        async for event in agent.stream(waiting):
            if event.kind == "stdout" and event.data == b"go\n":
                forged = f"say(done({waiting.id!r}, status='exit', exit_code=9)); print('said')"
                result = await attack(agent, forged, kernel="other")
                assert result.stdout == b"said\n"
                await agent.write("end", b"")
            if event.result is not None:
                seen.append(event.result)

        assert len(seen) == 1
        assert seen[0].ok, seen[0]
        assert seen[0].stdout == b"go\nend\n"
        await stands(subject, handle)


async def test_an_end_by_memory_or_signal_is_not_the_program_s_to_claim(subject: Subject) -> None:
    """Causes come from the operating system: a claim of running out of memory is an error like any other."""
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        forged = "say(done(OWN, status='error', error={'name': 'MemoryError', 'value': 'oom', 'traceback': ''}))"
        claimed = await attack(agent, forged)
        await agent.restart_kernel("main")
        killed = await attack(agent, "say(done(OWN, cause='oom')); os.kill(os.getpid(), 9)", kernel="second")
        script = await run(agent, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", ExecKind.SCRIPT)

        assert claimed.cause is Cause.ERROR
        assert claimed.peak is None
        assert killed.cause in (Cause.KILLED, Cause.EXITED)
        assert (script.cause, script.exit_code) == (Cause.KILLED, -9)
        assert explained(script)
        await stands(subject, handle)


async def test_what_looks_like_frames_on_output_is_output(subject: Subject) -> None:
    code = (
        "import os\n"
        "text = done(OWN) + frame({'t': 'event', 'id': 1, 'seq': 1, 'kind': 'result', 'parts': [2, 0, 0]}, b'{}')\n"
        "os.write(1, text); os.write(2, text); os.write(1, b'after')"
    )
    async with subject.linked_sandbox() as agent:
        result = await attack(agent, code)

        assert result.ok
        assert result.stdout.endswith(b"after")
        assert b'"kind": "result"' in result.stdout
        assert result.stderr == result.stdout.removesuffix(b"after")
        await answers(agent)


async def test_bytes_on_every_descriptor_harm_this_kernel_at_most(subject: Subject) -> None:
    """Everything that can be written to gets a full frame, then noise."""
    code = (
        "import os\n"
        "for name in os.listdir('/proc/self/fd'):\n"
        "    for data in (done('exe_ffffffffffffffffffffffff'), os.urandom(4096)):\n"
        "        try: os.set_blocking(int(name), False); os.write(int(name), data)\n"
        "        except OSError: pass\n"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await run(agent, "x = 'before'")
        result = await attack(agent, code)
        assert result.ok or (result.cause is Cause.KILLED and explained(result)), result
        if result.state is not State.LOST:
            assert await printed(agent, "print(x)") == "before"
        await stands(subject, handle)


async def test_a_display_that_is_too_much_is_bounded(subject: Subject) -> None:
    code = (
        "bundle = json.dumps({'data': {'text/plain': 'x' * 100_000}}).encode()\n"
        "with socket.socket(fileno=os.dup(sockets()[0])) as sock:\n"
        "    for _ in range(400): sock.sendall(frame({'t': 'display', 'exec': OWN, 'display': 'display'}, bundle))\n"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        result = await attack(agent, code)
        assert sum(len(text) for display in result.displays for text in display.data.values()) <= 16 * MIB
        assert result.notes
        await stands(subject, handle)


async def test_ids_of_executions_cannot_be_taken_twice(subject: Subject) -> None:
    """A second request with a finished id is refused, not answered with the old result."""
    async with subject.linked_sandbox() as agent:
        asked = request("print('first')")
        first = [event async for event in agent.stream(asked)]
        assert first[-1].result is not None
        with anyio.fail_after(20), pytest.raises(Conflict, match="exists already"):
            async for _event in agent.stream(asked):
                pass
