"""Engine checks: running code, and the result of a call."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import anyio

from warren.domain.values import MIB, Cause, ExecKind, State
from warren.testing.subject import DEADLINE_S, printed, request, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.core.agent.client import AgentClient
    from warren.domain.values import Event
    from warren.testing.subject import Subject


async def check_a_cell_runs_and_says_how_it_went(subject: Subject) -> None:
    """Output, exit code, cause, state and times are there, and nothing needs a hint."""
    async with subject.linked_sandbox() as agent:
        result = await run(agent, "import sys\nprint('out')\nprint('err', file=sys.stderr)")

        assert result.ok
        assert (result.exit_code, result.cause, result.state) == (0, Cause.EXITED, State.KEPT)
        assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
        assert result.duration_ms > 0
        assert result.error is None
        assert result.hint is None


async def check_the_last_expression_is_displayed(subject: Subject) -> None:
    """The value of a cell's last expression comes as a display that is marked as the result."""
    async with subject.linked_sandbox() as agent:
        result = await run(agent, "x = 6\nx * 7")

        assert [d.data["text/plain"] for d in result.displays if d.is_result] == ["42"]
        assert result.stdout == b""


async def check_variables_persist(subject: Subject) -> None:
    """A variable is there in the next call, and on the next connection."""
    async with subject.sandbox() as handle:
        async with subject.agent(handle) as agent:
            await run(agent, "import math\nx = 1")
            assert await printed(agent, "x += 1; print(x)") == "2"
        async with subject.agent(handle) as agent:
            assert await printed(agent, "print(x, math.pi > 3)") == "2 True"


async def check_c_can_call_back(subject: Subject) -> None:
    """Callbacks of ctypes work in cells and in scripts, in any number."""
    code = (
        "import ctypes\n"
        "Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)\n"
        "made = [Callback(lambda x: x + 1) for _ in range(1000)]\n"
        "print(sum(each(1) for each in made))"
    )
    async with subject.linked_sandbox() as agent:
        for kind in (ExecKind.CELL, ExecKind.SCRIPT):
            result = await run(agent, code, kind=kind)
            assert (result.stdout, result.stderr) == (b"2000\n", b"")


async def check_an_exception_is_a_value(subject: Subject) -> None:
    """A cell that raises ends with cause error and the traceback, and costs no variable."""
    async with subject.linked_sandbox() as agent:
        await run(agent, "x = 1")
        result = await run(agent, "def broken():\n    return 1 / 0\nbroken()")

        assert (result.exit_code, result.cause, result.state) == (1, Cause.ERROR, State.KEPT)
        assert result.error is not None
        assert result.error["name"] == "ZeroDivisionError"
        assert "broken" in result.error["traceback"]
        assert await printed(agent, "print(x)") == "1"


async def check_a_script_has_its_own_process(subject: Subject) -> None:
    """A script is `__main__` with its arguments, shares no variable, and its exit code is its own."""
    async with subject.linked_sandbox() as agent:
        await run(agent, "x = 1")
        code = "import sys\nprint(__name__, sys.argv[1:], 'x' in globals())\nsys.exit(7)"
        result = await run(agent, code, ExecKind.SCRIPT, argv=("a", "b c"))

        assert result.stdout.decode() == "__main__ ['a', 'b c'] False\n"
        assert (result.exit_code, result.cause, result.state) == (7, Cause.EXITED, State.NONE)


async def check_a_shell_command_runs(subject: Subject) -> None:
    """Bash runs it, in the workspace, with pipes and its own exit code."""
    async with subject.linked_sandbox() as agent:
        result = await run(agent, "echo one two | tr a-z A-Z; echo bad >&2; echo x > made; exit 3", ExecKind.SHELL)

        assert (result.stdout, result.stderr, result.exit_code) == (b"ONE TWO\n", b"bad\n", 3)
        assert (result.cause, result.state) == (Cause.EXITED, State.NONE)
        assert await printed(agent, "print(open('made').read())") == "x"


async def check_an_argument_list_is_not_parsed(subject: Subject) -> None:
    """An argv reaches its program unchanged, also where a shell would expand it."""
    async with subject.linked_sandbox() as agent:
        result = await run(agent, "", ExecKind.ARGV, argv=("printf", "%s|", "$HOME", "a;b", "* ?", ""))

        assert result.stdout == b"$HOME|a;b|* ?||"


async def check_a_missing_program_says_so(subject: Subject) -> None:
    """The result, not an exception, names a missing program."""
    async with subject.linked_sandbox() as agent:
        result = await run(agent, "", ExecKind.ARGV, argv=("no-such-program",))

        assert result.exit_code == 127
        assert b"no-such-program" in result.stderr


async def check_environment_and_folder_are_as_asked(subject: Subject) -> None:
    """Variables of the spec and of the call are seen, the call's winning; `cwd` is below the workspace."""
    common = {"FROM_ALL": "all", "FROM_SPEC": "all", "BOTH": "all"}
    async with subject.linked_sandbox(common_env=common, env={"FROM_SPEC": "spec", "BOTH": "spec"}) as agent:
        await agent.mkdir("sub")
        echo = 'echo "$FROM_ALL $FROM_SPEC $BOTH ${PWD##*/}"'
        result = await run(agent, echo, ExecKind.SHELL, env={"BOTH": "call"}, cwd="sub")

        assert result.stdout == b"all spec call sub\n"
        assert await printed(agent, "import os; print(os.environ['BOTH'])") == "spec"


async def check_a_sandbox_for_a_single_use_runs_what_is_asked(subject: Subject) -> None:
    """It prepares nothing for a second execution, and still runs one."""
    async with subject.linked_sandbox(single_use=True) as agent:
        assert await printed(agent, "x = 6 * 7; print(x)") == "42"
        assert await printed(agent, "print(x)") == "42"
        assert (await run(agent, "print('x' in globals())", ExecKind.SCRIPT)).stdout == b"False\n"
        ended = await run(agent, "import os; os._exit(3)")
        assert ended.exit_code == 3
        assert await printed(agent, "print('up again')") == "up again"


async def check_output_is_streamed_as_it_is_written(subject: Subject) -> None:
    """An event arrives while the program still runs, and the events add up to the result."""
    code = "print('one', flush=True)\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.005)\nprint('two')"
    async with subject.linked_sandbox() as agent:
        events: list[Event] = []
        async for event in agent.stream(request(code)):
            if event.kind == "stdout" and not events:
                await agent.write("go", b"")
            events.append(event)

        assert [event.seq for event in events] == sorted({event.seq for event in events})
        assert b"".join(e.data for e in events if e.kind == "stdout") == b"one\ntwo\n"
        assert events[-1].result is not None
        assert events[-1].result.stdout == b"one\ntwo\n"


async def check_output_is_bounded(subject: Subject) -> None:
    """Head and tail are kept, the cut is marked, and the true size is known."""
    size = 4 * MIB
    async with subject.linked_sandbox() as agent:
        code = f"import sys; sys.stdout.write('head' + '.' * {size} + 'tail')"
        result = await run(agent, code, output_bytes=64 << 10, stream=False)

        assert result.ok
        assert result.truncated
        assert result.stdout_bytes == size + 8
        assert result.stdout.startswith(b"head")
        assert result.stdout.endswith(b"tail")
        assert len(result.stdout) <= (64 << 10) + 1024


async def check_endless_output_is_ended(subject: Subject) -> None:
    """A program that writes above its limit is ended with cause output, and the sandbox still answers."""
    async with subject.linked_sandbox() as agent:
        result = await run(agent, "yes", ExecKind.SHELL, output_max_bytes=8 * MIB, stream=False)

        assert result.cause is Cause.OUTPUT
        assert result.limit == 8 * MIB
        assert result.hint
        assert await printed(agent, "print('on')") == "on"


async def check_standard_input_is_what_was_sent(subject: Subject) -> None:
    """A program reads exactly the bytes it was given, then the end."""
    sent = bytes(range(256)) * 4096

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(sent), 100_000):
            yield sent[start : start + 100_000]

    async with subject.linked_sandbox() as agent:
        result = await agent.run(request("wc -c; sha256sum /dev/null | wc -l", ExecKind.SHELL), stdin=parts())
        assert result.stdout.split() == [str(len(sent)).encode(), b"1"]

        cell = await agent.run(request("print(input(), input())"), stdin=b"one\ntwo\n")
        assert cell.stdout == b"one two\n"


async def check_input_without_standard_input_does_not_hang(subject: Subject) -> None:
    """`input()` with nothing to read raises EOFError at once."""
    async with subject.linked_sandbox() as agent:
        result = await run(agent, "input('name? ')", timeout_s=20)

        assert result.cause is Cause.ERROR
        assert result.error is not None
        assert result.error["name"] == "EOFError"


async def check_a_background_child_does_not_hold_the_call(subject: Subject) -> None:
    """The call ends with the command; processes that it left run on, or are killed, by request."""
    async with subject.linked_sandbox() as agent:
        kept = await run(agent, "sleep 600 & echo $!", ExecKind.SHELL, timeout_s=20)
        killed = await run(agent, "sleep 600 & echo $!", ExecKind.SHELL, timeout_s=20, kill_leftovers=True)
        assert (kept.cause, killed.cause) == (Cause.EXITED, Cause.EXITED)

        alive = "import os; print(open(f'/proc/{pid}/stat').read().split()[2] not in 'ZX')"
        assert await printed(agent, f"pid = {int(kept.stdout)}\n{alive}") == "True"
        await _wait_until_ended(agent, int(killed.stdout))


async def _wait_until_ended(agent: AgentClient, pid: int) -> None:
    """Wait until a killed process is gone: on a busy machine it takes a while."""
    lives = f"kill -0 {pid} && grep -qv ') Z' /proc/{pid}/stat"
    with anyio.fail_after(DEADLINE_S):
        while (await run(agent, lives, ExecKind.SHELL)).exit_code == 0:  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.02)


async def check_changed_files_are_listed(subject: Subject) -> None:
    """Created, modified and deleted files are named with the call that did it, and with no other."""
    async with subject.linked_sandbox() as agent:
        await agent.write("old", b"1")
        await agent.write("doomed", b"1")
        await run(agent, "pass")
        code = "import os\nopen('new', 'w').write('22')\nopen('old', 'w').write('333')\nos.remove('doomed')"
        result = await run(agent, code)
        quiet = await run(agent, "pass")

        changes = {(c.path, c.action) for c in result.files_changed}
        assert changes == {("new", "created"), ("old", "modified"), ("doomed", "deleted")}
        assert {c.path: c.size for c in result.files_changed if c.action != "deleted"} == {"new": 2, "old": 3}
        assert result.files_changed_complete
        assert quiet.files_changed == ()


async def check_rich_output_is_displayed(subject: Subject) -> None:
    """An object that can show itself as HTML or an image does so, in each of its types."""
    code = (
        "class Shown:\n"
        "    def _repr_html_(self): return '<b>x</b>'\n"
        "    def _repr_png_(self): return b'\\x89PNG bytes'\n"
        "    def __repr__(self): return 'plain'\n"
        "Shown()"
    )
    async with subject.linked_sandbox() as agent:
        result = await run(agent, code)

        shown = [d for d in result.displays if d.is_result]
        assert len(shown) == 1
        assert shown[0].data["text/plain"] == "plain"
        assert shown[0].data["text/html"] == "<b>x</b>"
        assert base64.b64decode(shown[0].data["image/png"]) == b"\x89PNG bytes"
