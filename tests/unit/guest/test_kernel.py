"""Cells in a real kernel, forked by a real forkserver, with each executor."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

import pytest

from unit.guest.agent_client import until

if TYPE_CHECKING:
    from unit.guest.forkserver_harness import ForkserverHarness, Kernel, Pipes


def wait_for_output(pipes: Pipes, text: str) -> None:
    while text not in pipes.stdout_so_far():
        ready = select.select(pipes.fds(), [], [], 30)[0]
        assert ready, "the cell said nothing"
        pipes.read(ready)


def test_the_value_of_the_last_expression_is_displayed(kernel: Kernel) -> None:
    ran = kernel.run("x = 20\nx + 1")

    assert ran.status == "ok"
    assert [(display["kind"], display["data"]) for display in ran.displays] == [("result", {"text/plain": "21"})]
    assert ran.stdout == ran.stderr == ""


def test_variables_stay_between_cells(kernel: Kernel) -> None:
    kernel.run("names = ['a']")

    assert kernel.run("names.append('b'); names").texts == ["['a', 'b']"]


@pytest.mark.parametrize("code", ["x = 1", "None", "7;", "7;  # quiet", "", "# nothing"])
def test_a_cell_without_a_value_to_show_displays_nothing(kernel: Kernel, code: str) -> None:
    ran = kernel.run(code)

    assert (ran.status, ran.displays) == ("ok", [])


def test_an_underscore_is_the_last_value(kernel: Kernel) -> None:
    kernel.run("6 * 7")

    assert kernel.run("_ + 1").texts == ["43"]


def test_echo_to_stdout_prints_the_value(kernel: Kernel) -> None:
    ran = kernel.run("'word'", echo="stdout")

    assert (ran.stdout, ran.displays) == ("'word'\n", [])


def test_echo_none_shows_nothing(kernel: Kernel) -> None:
    ran = kernel.run("'word'", echo="none")

    assert (ran.stdout, ran.displays) == ("", [])


def test_await_works_at_the_top_level_and_tasks_go_on(kernel: Kernel) -> None:
    kernel.run(
        "import asyncio\nasync def work():\n    return 5\ntask = asyncio.ensure_future(work()) if False else None"
    )
    first = kernel.run("started = asyncio.create_task(work())\nawait asyncio.sleep(0)\n'made'")
    second = kernel.run("await started")

    assert (first.texts, second.texts) == (["'made'"], ["5"])


def test_input_reads_the_callers_input_and_then_ends(kernel: Kernel) -> None:
    ran = kernel.run("print(input('name? ')); print(input())", stdin=b"Ada\n")

    assert ran.stdout.startswith("name? Ada\n")
    assert ran.error is not None
    assert ran.error["name"] == "EOFError"


def test_an_end_of_input_is_not_remembered_by_the_next_cell(kernel: Kernel) -> None:
    first = kernel.run("input()")
    second = kernel.run("input()", stdin=b"one\ntwo\n")
    third = kernel.run("import sys; sys.stdin.read()", stdin=b"three\n")

    assert first.status == "error"
    assert (second.texts, third.texts) == (["'one'"], ["'three\\n'"])


@pytest.mark.parametrize(("code", "expected"), [("exit()", 0), ("quit(3)", 3), ("import sys; sys.exit(-1)", 255)])
def test_leaving_ends_the_cell_and_not_the_kernel(kernel: Kernel, code: str, expected: int) -> None:
    kernel.run("kept = 1")
    ran = kernel.run(code)

    assert (ran.status, ran.exit_code, ran.stderr) == ("exit", expected, "")
    assert kernel.run("kept").texts == ["1"]


def test_an_exit_message_goes_to_stderr(kernel: Kernel) -> None:
    ran = kernel.run("raise SystemExit('out of luck')")

    assert (ran.status, ran.exit_code, ran.stderr) == ("exit", 1, "out of luck\n")


def test_an_error_is_printed_once_on_stderr_and_claimed(kernel: Kernel) -> None:
    kernel.run("def divide(a):\n    return a / 0")
    ran = kernel.run("x = 1\ndivide(x)")

    assert ran.status == "error"
    assert ran.error is not None
    assert (ran.error["name"], ran.error["value"]) == ("ZeroDivisionError", "division by zero")
    assert ran.error["traceback"] == ran.stderr
    assert ran.stderr.count("Traceback") == 1
    assert 'File "<cell 2>", line 2, in <module>\n    divide(x)\n' in ran.stderr
    assert "    return a / 0\n" in ran.stderr
    assert "warren" not in ran.stderr
    assert "IPython" not in ran.stderr
    assert "\x1b" not in ran.stderr


def test_a_cell_that_does_not_compile_shows_where(kernel: Kernel) -> None:
    ran = kernel.run("good = 1\ndef broken(:\n    pass")

    assert ran.error is not None
    assert ran.error["name"] == "SyntaxError"
    assert ran.stderr.startswith('  File "<cell 1>", line 2\n    def broken(:\n')
    assert ran.stderr.count("SyntaxError") == 1


def test_an_error_inside_an_awaited_cell_shows_only_the_cell(kernel: Kernel) -> None:
    ran = kernel.run("import asyncio\nawait asyncio.sleep(0)\n1 / 0")

    assert ran.stderr.count("File ") == 1
    assert 'File "<cell 1>", line 3' in ran.stderr


def test_an_exception_that_cannot_be_printed_is_survived(kernel: Kernel) -> None:
    bad = "class Bad(Exception):\n    def __str__(self): raise RuntimeError('no')\n    __repr__ = __str__\n"
    ran = kernel.run(bad + "raise Bad")

    assert ran.error is not None
    assert ran.error["name"] == "Bad"
    assert kernel.run("1").status == "ok"


def test_endless_recursion_is_an_error_of_bounded_size(kernel: Kernel) -> None:
    ran = kernel.run("def down(n):\n    return down(n + 1)\ndown(0)")

    assert ran.error is not None
    assert ran.error["name"] == "RecursionError"
    assert len(ran.error["traceback"]) < 8192
    assert kernel.run("1").status == "ok"


def test_a_huge_exception_fits_its_claim(kernel: Kernel) -> None:
    ran = kernel.run("raise ValueError('\\x00é' * 1_000_000)")

    assert ran.error is not None
    assert "left out" in ran.error["value"]
    assert kernel.run("1").status == "ok"


def test_an_interrupt_ends_the_cell_and_keeps_the_variables(kernel: Kernel) -> None:
    pipes = kernel.start("n = 1\nprint('running', flush=True)\nwhile True:\n    n += 1")
    wait_for_output(pipes, "running")
    kernel.interrupt()
    ran = kernel.finish(pipes)

    assert ran.status == "interrupted"
    assert ran.stderr.endswith("KeyboardInterrupt\n")
    assert kernel.run("n > 0").texts == ["True"]


def test_an_interrupt_ends_an_awaiting_cell(kernel: Kernel) -> None:
    pipes = kernel.start("import asyncio\nprint('running', flush=True)\nawait asyncio.sleep(60)")
    wait_for_output(pipes, "running")
    kernel.interrupt()

    assert kernel.finish(pipes).status == "interrupted"
    assert kernel.run("await asyncio.sleep(0, 4)").texts == ["4"]


def test_an_interrupt_between_cells_does_nothing(kernel: Kernel) -> None:
    kernel.run("x = 3")
    kernel.interrupt()

    assert kernel.run("x").texts == ["3"]


def test_a_program_can_handle_the_interrupt_itself(kernel: Kernel) -> None:
    loop = "try:\n    print('running')\n    while True: pass\nexcept KeyboardInterrupt:\n    print('handled')"
    pipes = kernel.start(loop)
    wait_for_output(pipes, "running")
    kernel.interrupt()
    ran = kernel.finish(pipes)

    assert (ran.status, ran.stdout) == ("ok", "running\nhandled\n")


def test_output_streams_line_by_line(kernel: Kernel) -> None:
    pipes = kernel.start("print('first')\ninput()", stdin=b"")
    wait_for_output(pipes, "first\n")

    assert kernel.finish(pipes).stdout == "first\n"


def test_output_of_subprocesses_is_captured_in_order(kernel: Kernel) -> None:
    ran = kernel.run(
        "import subprocess, os\nprint('a')\nsubprocess.run(['echo', 'b'])\nprint('c')\nos.system('echo d >&2');"
    )

    assert (ran.stdout, ran.stderr) == ("a\nb\nc\n", "d\n")


def test_a_replaced_stdout_is_respected_and_survived(kernel: Kernel) -> None:
    ran = kernel.run("import sys, io\nreal, sys.stdout = sys.stdout, io.StringIO()\nprint('hidden')")
    back = kernel.run("text = sys.stdout.getvalue()\nsys.stdout = real\nprint(text.strip(), 'found')")

    assert (ran.status, ran.stdout) == ("ok", "")
    assert back.stdout == "hidden found\n"


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.stdout.close()",
        "import sys; sys.stdout = None; sys.stderr = None",
        "import sys; del sys.stdout",
        "import os; os.close(1); os.close(2)",
        "import os, sys; print('lost', end=''); os.close(1)",
        "import sys; sys.stdin.close(); sys.stdin = None",
        "import sys\nclass Odd:\n    closed = property(lambda self: 1 / 0)\nsys.stdout = sys.stderr = Odd()",
    ],
)
def test_broken_streams_are_whole_again_in_the_next_cell(kernel: Kernel, code: str) -> None:
    kernel.run(code)
    ran = kernel.run("import sys\nprint('here')\nprint('there', file=sys.stderr)\nprint(input())", stdin=b"in\n")

    assert (ran.stdout, ran.stderr) == ("here\nin\n", "there\n")


def test_a_logging_handler_of_an_earlier_cell_writes_to_the_present_one(kernel: Kernel) -> None:
    kernel.run("import logging, sys\nlog = logging.getLogger('t')\nlog.addHandler(logging.StreamHandler(sys.stderr))")

    assert kernel.run("log.warning('careful')").stderr == "careful\n"


def test_the_environment_of_a_cell_lasts_as_long_as_the_cell(kernel: Kernel) -> None:
    first = kernel.run("import os; os.environ['COLOUR']", env={"COLOUR": "red"})
    second = kernel.run("os.environ.get('COLOUR')")

    assert (first.texts, second.displays) == (["'red'"], [])


def test_the_environment_is_the_given_one_and_nothing_else(forkserver: ForkserverHarness) -> None:
    ran = forkserver.kernel(env={"ONLY": "this"}).run("import os; dict(os.environ)")

    assert ran.texts == ["{'ONLY': 'this'}"]


def test_the_folder_of_a_cell_lasts_as_long_as_the_cell(forkserver: ForkserverHarness, kernel: Kernel) -> None:
    os.makedirs(os.path.join(forkserver.workspace, "below", "more"), exist_ok=True)
    inside = kernel.run("import os; os.path.basename(os.getcwd())", cwd="below")
    after = kernel.run("os.getcwd()")
    missing = kernel.run("1", cwd="nowhere")

    assert inside.texts == ["'below'"]
    assert after.texts == [repr(forkserver.workspace)]
    assert missing.error is not None
    assert missing.error["name"] == "FileNotFoundError"


def test_a_kernel_holds_only_its_own_descriptors(kernel: Kernel) -> None:
    ran = kernel.run("import os; sorted(int(fd) for fd in os.listdir('/proc/self/fd'))")

    # The fifth is the listing itself.
    assert ran.texts == ["[0, 1, 2, 3, 4]"]


def test_a_cell_that_uses_up_all_descriptors_does_not_stop_the_next(kernel: Kernel) -> None:
    kernel.run("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))")
    first = kernel.run("held = []\nwhile True:\n    held.append(open('/dev/null'))")
    second = kernel.run("for file in held: file.close()\nlen(held) > 10", checkpoint=1 << 30)

    assert first.error is not None
    assert "Too many open files" in first.error["value"]
    assert second.texts == ["True"]
    assert second.copy is not None


def test_a_cell_that_too_few_descriptors_are_left_for_takes_none_of_them(kernel: Kernel) -> None:
    # 0 to 3 are its own: two of the three that come with the next cell still fit.
    kernel.run("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))")
    refused = kernel.run("1")

    assert refused.error is not None
    assert "no free descriptor" in refused.error["value"]
    until(lambda: sorted(os.listdir(f"/proc/{kernel.pid}/fd")) == ["0", "1", "2", "3"])


def test_a_child_that_user_code_forks_does_not_speak_for_the_kernel(kernel: Kernel) -> None:
    ran = kernel.run("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('parent' if pid else 'child')")

    assert ran.stdout == "child\nparent\n"
    assert kernel.run("pid > 0").texts == ["True"]


def test_classes_made_in_cells_can_be_pickled(kernel: Kernel) -> None:
    ran = kernel.run("import pickle\nclass Point:\n    x = 4\npickle.loads(pickle.dumps(Point())).x")

    assert ran.texts == ["4"]


def test_a_kernel_leads_its_own_session(kernel: Kernel) -> None:
    assert kernel.run("import os; os.getsid(0) == os.getpid()").texts == ["True"]


def test_a_kernel_ends_when_the_agent_hangs_up(forkserver: ForkserverHarness) -> None:
    kernel = forkserver.kernel()
    kernel.link.close()

    assert os.waitstatus_to_exitcode(forkserver.wait(kernel.pid)) == 0


def test_a_kernel_that_closes_its_control_socket_dies_alone(forkserver: ForkserverHarness) -> None:
    kernel = forkserver.kernel()
    ran = kernel.run("import os; os.close(3)")

    assert ran.status == "died"
    assert forkserver.kernel().run("1").texts == ["1"]


def test_an_interrupt_in_the_middle_of_a_large_display_leaves_frames_whole(kernel: Kernel) -> None:
    show = "display({'text/plain': 'x' * 3_000_000}, raw=True)"
    pipes = kernel.start(f"print('running')\n{show}\n{show}\nwhile True: pass")
    # The display fills the socket, which is not read until the interrupt has been sent.
    wait_for_output(pipes, "running")
    kernel.interrupt()
    ran = kernel.finish(pipes)

    assert ran.status == "interrupted"
    assert all(len(text) == 3_000_000 for text in ran.texts)
    assert kernel.run("1").texts == ["1"]
