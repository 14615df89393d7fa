"""Scripts: source in, Python's own exit status out."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from unit.guest.forkserver_harness import ForkserverHarness


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1", 0),
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit(5)", 5),
        ("raise SystemExit(256 + 7)", 7),
        ("raise SystemExit(True)", 1),
        ("1 / 0", 1),
        ("def broken(:", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os._exit(9)", 9),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import atexit, os; atexit.register(os._exit, 6)", 6),
    ],
)
def test_the_exit_status_is_that_of_python(forkserver: ForkserverHarness, source: str, expected: int) -> None:
    status, _, _ = forkserver.script(source)

    assert os.waitstatus_to_exitcode(status) == expected


def test_an_exit_message_is_printed(forkserver: ForkserverHarness) -> None:
    status, output, errors = forkserver.script("import sys; sys.exit('bad luck')")

    assert (os.waitstatus_to_exitcode(status), output, errors) == (1, "", "bad luck\n")


def test_it_is_the_main_program_with_its_arguments(forkserver: ForkserverHarness) -> None:
    _, output, _ = forkserver.script("import sys\nif __name__ == '__main__':\n    print(sys.argv[1:])", "a", "b c")

    assert output == "['a', 'b c']\n"


def test_a_traceback_is_as_python_prints_it(forkserver: ForkserverHarness) -> None:
    _, _, errors = forkserver.script("def f():\n    return 1 / 0\nf()\n")
    lines = errors.splitlines()

    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith('main.py", line 3, in <module>')
    assert lines[2:4] == ["    f()", lines[3]]
    assert "    return 1 / 0" in lines
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "warren" not in errors


def test_a_script_that_does_not_compile_shows_where(forkserver: ForkserverHarness) -> None:
    _, _, errors = forkserver.script("x = 1\ny = = 2\n")

    assert "line 2" in errors
    assert "    y = = 2\n" in errors
    assert errors.endswith("SyntaxError: invalid syntax\n")
    assert "Traceback" not in errors


def test_threads_are_waited_for_and_exit_handlers_run_after_them(forkserver: ForkserverHarness) -> None:
    source = """
import atexit, threading
gate = threading.Event()
def work():
    gate.wait()
    print("thread")
atexit.register(print, "handler")
threading.Thread(target=work).start()
print("main", end=" ")
gate.set()
"""
    status, output, _ = forkserver.script(source)

    assert (status, output) == (0, "main thread\nhandler\n")


def test_input_is_read_and_ends(forkserver: ForkserverHarness) -> None:
    _, output, errors = forkserver.script("print(input())\ninput()", stdin=b"line\n")

    assert output == "line\n"
    assert errors.endswith("EOFError: EOF when reading a line\n")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_works(forkserver: ForkserverHarness, method: str) -> None:
    source = f"""
import multiprocessing
class Box:
    def __init__(self, value):
        self.value = value
def double(box):
    return Box(box.value * 2)
if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    with context.Pool(2) as pool:
        print([box.value for box in pool.map(double, [Box(n) for n in range(3)])])
"""
    status, output, errors = forkserver.script(source)

    assert (status, output, errors) == (0, "[0, 2, 4]\n", "")


def test_a_child_that_runs_off_the_end_leaves_the_source_to_its_parent(forkserver: ForkserverHarness) -> None:
    source = "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0); print(os.path.exists(__file__))"
    _, output, _ = forkserver.script(source)

    assert output == "True\n"


@pytest.mark.parametrize("source", ["x = 1", "1 / 0", "raise KeyboardInterrupt"])
def test_nothing_is_left_behind(forkserver: ForkserverHarness, source: str) -> None:
    before = set(os.listdir(forkserver.workspace))
    forkserver.script(source)

    assert set(os.listdir(forkserver.workspace)) == before


def test_it_is_not_a_notebook(forkserver: ForkserverHarness) -> None:
    source = """
import builtins, sys
print(hasattr(builtins, "display"), hasattr(builtins, "__IPYTHON__"))
if "IPython" in sys.modules:
    print(sys.modules["IPython"].get_ipython())
"""
    _, output, _ = forkserver.script(source)

    assert output in ("False False\n", "False False\nNone\n")


def test_output_that_cannot_be_written_is_an_error(forkserver: ForkserverHarness) -> None:
    status, _, _ = forkserver.script("import os\nprint('x', end='')\nos.close(1)")

    assert os.waitstatus_to_exitcode(status) == 120


def test_an_interrupt_ends_it_by_that_signal(forkserver: ForkserverHarness) -> None:
    status, _, errors = forkserver.script("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True: pass")

    assert os.waitstatus_to_exitcode(status) == -signal.SIGINT
    assert errors.endswith("KeyboardInterrupt\n")
