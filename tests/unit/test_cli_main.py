"""The command line's manners: one sentence, the right exit code, no traceback, nothing heavy imported for help."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from warren.cli.app import build_commands
from warren.cli.quick.arguments import ALIASES, expand
from warren.cli.registry import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

_WARREN = (sys.executable, "-c", "from warren.cli.main import main; main()")


def _warren(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_WARREN, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env={"PATH": os.defpath, "WARREN_DATA_DIR": str(folder / "data"), **env},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--imge", "x"), ("--imge", "--image")),
        (("imge",), ("imge", "image")),
        (("run",), ("nothing to run",)),
        (("run", "-c", "1", "--memory", "lots"), ("--memory", "512M")),
        (("run", "-c", "1", "--timeout", "soon"), ("--timeout", "30s")),
        (("run", "-c", "1", "--env", "NOVALUE"), ("NAME=value",)),
        (("run", "-c", "1", "--memory", "1"), ("--memory", "64M", "not 1 bytes", "512M")),
        (("run", "-c", "1", "--file", "missing.csv"), ("missing.csv",)),
        (("run", "missing.py"), ("missing.py",)),
        (("run", "-c", "1", "--engine", "magic", "--image", "python"), ("magic", "local")),
        (("run", "-c", "1", "--url", "elsewhere"), ("elsewhere", "http://127.0.0.1:8000")),
        (("sandbox", "exec", "3fa9"), ("after --",)),
        (("sandbox", "exec", "3fa9", "--shell", "--", "ls"), ("--shell",)),
        (("sandbox", "cp", "a.txt", "b.txt"), ("SANDBOX:PATH",)),
        (("sandbox", "crate"), ("crate", "create")),
        (("shell", "--sandbox", "3fa9"), ("terminal",)),
        (("top", "--interval", "often"), ("--interval", "30s")),
        (("serve", "--log-file", "x"), ("--daemon",)),
        (("completion", "tcsh"), ("tcsh", "fish")),
        (("ps", "--label", "novalue"), ("NAME=value",)),
        (("run", "-c", "1", "--cpus", "abc"), ("--cpus", "'abc' is not a number of processors", "0.5")),
        (("run", "-c", "1", "--memory", "999G"), ("--memory 999 GiB is more than the ", "GiB of this machine")),
        (("sandbox", "create", "--memory", "999G"), ("--memory 999 GiB is more than the ",)),
        (("run", "-c", "1", "--cpus", "1000"), (f"--cpus 1000 is more than the {os.cpu_count()} of this machine",)),
        (("run", "-c", "1", "--timeout", "99999999999h"), ("--timeout", "99999999999h is too long", "115d at most")),
        (("sandbox", "exec", "3fa9", "--timeout", "116d", "--", "ls"), ("--timeout", "115d at most")),
        (("run", "print(1)"), ("print(1) cannot be read", "-c")),
        (("run", "-c", "1", "--", *["a name"] * 8000), ("the arguments are 78.1 KiB, at most 58.6 KiB", "--file")),
        (("run", "-c", "1", "-e", "A=" + "b" * 70_000), ("the variables of --env are 68.4 KiB", "--file")),
    ],
)
def test_a_mistake_gets_one_sentence_that_names_it(
    tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = _warren(tmp_path, *arguments)

    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


def test_a_program_that_is_too_long_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("1\n" * 2_500_000)

    done = _warren(tmp_path, "run", "long.py")

    assert done.returncode == 2
    assert done.stderr.startswith("warren: the program is 4.8 MiB, at most 4.0 MiB: copy it in with --file")
    assert not (tmp_path / "data").exists()


def test_help_is_a_word_too(tmp_path: Path) -> None:
    assert _warren(tmp_path, "help").stdout == _warren(tmp_path, "--help").stdout
    assert _warren(tmp_path, "help", "sandbox", "rm").stdout == _warren(tmp_path, "sandbox", "rm", "--help").stdout


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_a_null_device_before_anything_is_opened(tmp_path: Path, closed: str) -> None:
    code = (
        "import os, sys\nfrom warren.cli.main import main\n"
        "try:\n    main(['version'])\nexcept SystemExit:\n    pass\n"
        "opened = [os.fstat(each).st_rdev for each in range(3)].count(os.stat('/dev/null').st_rdev)\n"
        "usable = None not in (sys.stdin, sys.stdout, sys.stderr) and all(map(os.get_inheritable, range(3)))\n"
        "os._exit(0 if usable and opened == int(sys.argv[1]) else 1)"
    )
    done = subprocess.run(
        ["bash", "-c", f'exec 0<&1; exec "$@" {closed}', "bash", sys.executable, "-c", code, str(closed.count("-"))],
        capture_output=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")


def test_an_unknown_image_names_the_nearest(tmp_path: Path) -> None:
    done = _warren(tmp_path, "run", "-c", "1", "--image", "pyton")

    assert done.returncode == 1
    assert "did you mean python?" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "data").exists()


def test_a_wrong_setting_is_exit_code_2(tmp_path: Path) -> None:
    done = _warren(tmp_path, "image", "list", WARREN_ENGIN="local")

    assert done.returncode == 2
    assert "WARREN_ENGINE" in done.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = _warren(tmp_path, "image", "show", "nothing", WARREN_DEBUG="true")

    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_version_is_printed_both_ways(tmp_path: Path) -> None:
    assert _warren(tmp_path, "version").stdout == _warren(tmp_path, "--version").stdout


def test_help_imports_nothing_that_runs_sandboxes(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom warren.cli.main import run\nrun(['run', '--help'])\n"
        "print(sorted({'anyio', 'asyncio', 'rich', 'httpx', 'uvicorn', 'warren.domain.values', 'warren.settings', "
        "'warren.cli.commands.sandbox'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True
    )

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("alias", "command"), ALIASES.items())
def test_an_alias_is_the_command_that_it_stands_for(alias: tuple[str, ...], command: tuple[str, ...]) -> None:
    assert expand([*alias, "--help", "x"]) == [*command, "--help", "x"]
    group = build_commands().commands[command[0]]
    assert len(command) == 1 or command[1] in group.commands
    assert alias[0] in COMMANDS if len(alias) == 2 else alias[0] not in COMMANDS


def test_every_command_can_be_asked_for_help(tmp_path: Path) -> None:
    for name in COMMANDS:
        done = _warren(tmp_path, name, "--help")
        assert (done.returncode, done.stderr) == (0, ""), name
        assert f"Usage: warren {name}" in done.stdout


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$@" image list | true', "bash", *_WARREN],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": os.defpath, "WARREN_DATA_DIR": str(tmp_path)},
        timeout=60,
        check=False,
    )

    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
