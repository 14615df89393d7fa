"""`warren run` with odd standard streams, with signals that are ignored, and with a keeper that ends or stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from e2e.serving import PROGRAM
from warren.cli.quick.wire import Signals, Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.conftest import Cli

FLOOD = "while True: print('x' * 1000)"
LAST = "import sys; print('first', flush=True); input(); print('last'); sys.exit(7)"


def _in_shell(warren: Cli, line: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash, in which `"$@"` is the command."""
    return subprocess.run(
        ["bash", "-c", line, "bash", *PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=warren.folder,
        env=warren.env,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("source", ["-", "/dev/stdin", "<(...)", "fifo"])
def test_a_program_from_a_pipe_runs_although_the_keeper_is_gone(warren: Cli, source: str) -> None:
    """The quick command has read it by then."""
    warren("run", "-c", "1")
    warren("stop-engine")
    if source == "fifo":
        os.mkfifo(warren.folder / "fifo")
        writer = threading.Thread(target=(warren.folder / "fifo").write_text, args=("print(5)",))
        writer.start()
        done = warren("run", "fifo")
        writer.join()
    elif source == "<(...)":
        done = _in_shell(warren, '"$@" run <(echo "print(5)")')
    else:
        done = warren("run", source, stdin=b"print(5)")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"5\n", b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_a_null_device(warren: Cli, closed: str) -> None:
    code = "import os, sys; os.write(1, b'out'); os.write(2, b'err'); sys.exit(len(sys.stdin.read()) + 7)"
    warren("run", "-c", "1")

    done = _in_shell(warren, f'"$@" {closed}', "run", "-c", code)

    assert done.returncode == 7
    assert done.stdout == (b"" if " >&-" in f" {closed}" else b"out")
    assert done.stderr == (b"" if "2>&-" in closed else b"err")


def test_a_keeper_that_is_replaced_costs_neither_the_exit_code_nor_a_sandbox(warren: Cli) -> None:
    _skip_without_keeper(warren)
    warren("run", "-c", "1")
    with warren.start("run", "-c", LAST) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        other = type(warren)(warren.engine, warren.data_dir, warren.folder)
        other.env["WARREN_OPTIONAL_LAYERS"] = ",".join(filter(None, (warren.env["WARREN_OPTIONAL_LAYERS"], "landlock")))
        assert other("run", "-c", "print('other')").stdout == b"other\n"
        out, err = process.communicate(b"\n", timeout=60)

    assert (process.returncode, out, err) == (7, b"last\n", b"")
    assert warren.sandboxes() == []


@pytest.mark.parametrize("is_quick", [True, False])
def test_a_keeper_that_does_not_answer_is_not_waited_for(warren: Cli, is_quick: bool) -> None:
    _skip_without_keeper(warren)
    warren("run", "-c", "1")
    if not is_quick:
        (warren.folder / "warren.toml").touch()
    keeper = _find_keeper(warren)
    try:
        with warren.start("run", "-c", LAST) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"first\n"
            os.kill(keeper, signal.SIGSTOP)
            _, err = process.communicate(b"\n", timeout=60)
    finally:
        os.kill(keeper, signal.SIGCONT)

    assert process.returncode == 7
    assert err == b"warren: a sandbox is left to the next command: the keeper does not answer\n"
    assert warren("run", "-c", "print(1)").stdout == b"1\n"


def test_a_signal_that_is_ignored_reaches_no_program(warren: Cli) -> None:
    """As under `nohup`."""
    with subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *PROGRAM, "run", "-c", LAST],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=warren.folder,
        env=warren.env,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate(b"\n", timeout=60)

    assert (process.returncode, out) == (7, b"last\n")


@pytest.mark.parametrize("make", [socket.socketpair, os.openpty], ids=["socket", "terminal"])
def test_a_signal_ends_it_although_its_socket_or_terminal_is_full(
    warren: Cli, make: Callable[[], tuple[int | socket.socket, int | socket.socket]]
) -> None:
    ours, theirs = (each.detach() if isinstance(each, socket.socket) else each for each in make())
    try:
        with subprocess.Popen(
            [*PROGRAM, "run", "-c", FLOOD],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            cwd=warren.folder,
            env=warren.env,
        ) as process:
            assert os.read(ours, 1) == b"x"
            process.terminate()

            assert process.wait(60) == 128 + signal.SIGTERM
    finally:
        os.close(ours)
        os.close(theirs)
    assert warren.sandboxes() == []


def test_a_script_has_its_own_name(warren: Cli) -> None:
    code = "import os, sys\nprint(os.path.basename(sys.argv[0]), sys.argv[1:])\nraise ValueError(__file__)\n"
    (warren.folder / "boom.py").write_text(code)
    for _ in range(2):
        done = warren("run", "boom.py", "--output", "results", "--", "x")

        assert (done.returncode, done.stdout) == (1, b"boom.py ['x']\n")
        assert b'boom.py", line 3, in <module>' in done.stderr
        assert b"main.py" not in done.stderr
    assert not (warren.folder / "results" / "boom.py").exists()


def test_a_long_script_of_bash_takes_arguments(warren: Cli) -> None:
    (warren.folder / "long.sh").write_text("# a comment\n" * 20_000 + 'echo "$1 and $2"; exit 4\n')
    for _ in range(2):
        done = warren("run", "long.sh", "--", "one", "two")

        assert (done.returncode, done.stdout, done.stderr) == (4, b"one and two\n", b"")


def _skip_without_keeper(warren: Cli) -> None:
    if warren.engine == "bare":
        pytest.skip("the bare engine does without a keeper")


def _find_keeper(warren: Cli) -> int:
    signals = Signals()
    try:
        keeper = Wire(os.path.join(warren.data_dir, "local", "keeper.sock"), signals)
        keeper.socket.close()
        return int(keeper.hello["pid"])
    finally:
        signals.close()
