"""`warren run`, from outside: a real process, a real sandbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from e2e.conftest import Cli


def test_a_program_prints_and_its_exit_code_is_ours(warren: Cli) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"

    done = warren("run", "-c", code)

    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")


def test_a_file_takes_arguments_and_standard_input(warren: Cli) -> None:
    (warren.folder / "ask.py").write_text("import sys\nprint(sys.argv[1:], input())\n")

    done = warren("run", "ask.py", "--", "--flag", "two words", stdin=b"hello\n")

    assert done.stdout == b"['--flag', 'two words'] hello\n"
    assert done.returncode == 0


def test_a_program_comes_from_standard_input(warren: Cli) -> None:
    assert warren("run", "-", stdin=b"print(6 * 7)").stdout == b"42\n"


def test_bash_runs_with_shell_or_by_its_suffix(warren: Cli) -> None:
    (warren.folder / "script.sh").write_text('echo "from $1"; exit 4\n')

    assert warren("run", "--shell", "-c", "echo $((6 * 7)) | tr 4 5").stdout == b"52\n"
    done = warren("run", "script.sh", "--", "bash")
    assert (done.returncode, done.stdout) == (4, b"from bash\n")


def test_bytes_pass_through_unchanged(warren: Cli) -> None:
    data = bytes(range(256)) * 1000

    done = warren("run", "-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", stdin=data)

    assert done.stdout == data


def test_output_appears_while_the_program_runs(warren: Cli) -> None:
    with warren.start("run", "-c", "print('first', flush=True); input(); print('second')") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        out, _ = process.communicate(b"go\n", timeout=60)

    assert out == b"second\n"
    assert process.returncode == 0


def test_a_flood_of_output_arrives_whole(warren: Cli) -> None:
    code = "import sys\nfor i in range(100): sys.stdout.write(str(i % 10) * (1 << 20))"
    done = warren("run", "-c", code)

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"".join(b"%d" % (i % 10) * (1 << 20) for i in range(100))


def test_a_timeout_is_explained_and_exits_124(warren: Cli) -> None:
    done = warren("run", "--timeout", "2s", "-c", "print('partial', flush=True)\nwhile True: pass")

    assert done.returncode == 124
    assert done.stdout == b"partial\n"
    assert b"out of time, limit 2 s" in done.stderr


def test_a_crash_is_explained_and_exits_with_its_signal(warren: Cli) -> None:
    done = warren("run", "-c", "import ctypes; ctypes.string_at(0)")

    assert done.returncode == 128 + signal.SIGSEGV
    assert b"SIGSEGV" in done.stderr


def test_running_out_of_memory_is_explained_and_exits_137(warren: Cli) -> None:
    if warren.engine == "bare" or os.geteuid() != 0:
        pytest.skip("the bare engine enforces no limits, and an ordinary user needs a delegated control group")

    done = warren("run", "--memory", "128M", "-c", "hog = [bytearray(8 << 20) for _ in range(100)]")

    assert done.returncode == 137
    assert b"out of memory, limit 128 MiB" in done.stderr


def test_files_go_in_and_only_changed_ones_come_out(warren: Cli) -> None:
    (warren.folder / "in.csv").write_text("1,2\n")
    (warren.folder / "tree" / "deep").mkdir(parents=True)
    (warren.folder / "tree" / "deep" / "x").write_text("x")
    (warren.folder / "tree" / "one").write_text("1")
    os.link(warren.folder / "tree" / "one", warren.folder / "tree" / "same")
    code = (
        "import os\nassert open('data/in.csv').read() == '1,2\\n'\nassert open('tree/deep/x').read() == 'x'\n"
        "assert open('tree/one').read() == open('tree/same').read() == '1'\n"
        "os.makedirs('made/by'); open('made/by/me', 'w').write('new')\nopen('tree/deep/x', 'a').write('y')\n"
        "os.symlink('/etc/passwd', 'made/link')"
    )

    done = warren("run", "-c", code, "--file", "in.csv:data/in.csv", "--file", "tree", "--output", "results")

    assert done.returncode == 0, done.stderr
    found = {
        os.path.relpath(os.path.join(parent, name), warren.folder / "results")
        for parent, _, names in os.walk(warren.folder / "results")
        for name in names
    }
    assert found == {"made/by/me", "tree/deep/x"}
    assert (warren.folder / "results" / "tree" / "deep" / "x").read_text() == "xy"


def test_the_environment_is_what_was_asked_for(warren: Cli) -> None:
    done = warren("run", "-c", "import os; print(os.environ['A'], 'WARREN_IMAGE' in os.environ)", "--env", "A=b=c")

    assert done.stdout == b"b=c False\n"


def test_json_holds_the_whole_result(warren: Cli) -> None:
    done = warren("run", "--json", "-c", "import sys; open('made', 'w').write('1'); print('hi'); sys.exit(3)")
    result = json.loads(done.stdout)

    assert done.returncode == 3
    assert (result["exit_code"], result["cause"], result["stdout"]) == (3, "exited", "hi\n")
    assert [change["path"] for change in result["files_changed"]] == ["made"]


def test_ctrl_c_interrupts_the_program_and_then_the_sandbox_is_gone(warren: Cli) -> None:
    code = (
        "import os, time\ntry:\n    os.write(1, b'up\\n')\n    time.sleep(600)\n"
        "except KeyboardInterrupt:\n    os.write(1, b'caught\\n')\n    raise"
    )
    with warren.start("run", "-c", code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)

    assert out == b"caught\n"
    assert process.returncode == 130
    assert warren.sandboxes() == []


def test_a_second_ctrl_c_kills_a_program_that_does_not_listen(warren: Cli) -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGINT, lambda *_: os.write(1, b'no\\n'))\n"
        "os.write(1, b'up\\n')\nwhile True: time.sleep(0.01)"
    )
    with warren.start("run", "-c", code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"no\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)

    assert process.returncode == 130


def test_being_told_to_end_destroys_the_sandbox(warren: Cli) -> None:
    with warren.start("run", "-c", "print('up', flush=True)\nwhile True: pass") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.terminate()
        process.communicate(timeout=60)

    assert process.returncode == 128 + signal.SIGTERM
    assert warren.sandboxes() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_although_its_output_is_unread(warren: Cli, number: signal.Signals) -> None:
    with warren.start("run", "-c", "while True: print('x' * 1000)") as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        process.send_signal(number)

        assert process.wait(60) == 128 + number


def test_the_sandbox_of_a_killed_command_is_removed_by_the_next(warren: Cli) -> None:
    with warren.start("run", "-c", "print('up', flush=True)\nwhile True: pass") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.kill()
        process.communicate(timeout=60)
    assert len(warren.sandboxes()) == 1

    assert warren("run", "-c", "print(1)").stdout == b"1\n"
    assert warren.sandboxes() == []


def test_a_reader_that_leaves_ends_it_quietly(warren: Cli) -> None:
    with warren.start("run", "-c", "while True: print('y' * 1000)") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        process.wait(60)

    assert process.returncode == 141
    assert said == b""


def test_limits_that_make_no_sense_are_refused_before_anything_is_made(warren: Cli) -> None:
    done = warren("run", "-c", "1", "--memory", "1K")

    assert done.returncode == 2
    assert b"--memory must be between 64M and 1024G, not 1024 bytes: write it with M or G" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_folder_for_results_that_cannot_be_made_is_refused_before_anything_runs(warren: Cli) -> None:
    done = warren("run", "-c", "print('it ran')", "--output", "/proc/results")

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"warren: --output /proc/results cannot be made: No such file or directory\n"


def test_the_second_of_two_like_commands_is_quick(warren: Cli) -> None:
    if warren.engine == "bare":
        pytest.skip("quick commands ask a keeper, which the bare engine does without")
    warren("run", "-c", "1")
    code = "import sys; from warren.cli.main import run; run(sys.argv[1:]); print('typer' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", code, "run", "-c", "print('ran')"],
        env=warren.env,
        cwd=warren.folder,
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (done.stdout, done.stderr) == (b"ran\nFalse\n", b"")
