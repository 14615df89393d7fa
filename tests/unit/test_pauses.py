"""`make pauses` when a signal ends it: it ends the tests, waits for them, and leaves nothing stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_DEADLINE_S = 100
_PAUSES = Path(__file__).parents[1] / "suites" / "pauses.py"
_TEST = """
import os, pathlib, time, pytest

@pytest.fixture
def busy():
    pathlib.Path("pid").write_text(f"{os.getpid()}\\n")
    yield
    pathlib.Path("torn down").touch()

def test_busy(busy):
    while True:
        time.sleep(0.001)
"""


def _until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


@pytest.mark.parametrize(
    ("number", "code", "is_torn_down"),
    [pytest.param(signal.SIGINT, 2, True, id="SIGINT"), pytest.param(signal.SIGTERM, 143, False, id="SIGTERM")],
)
def test_pauses_that_are_ended_end_the_tests_and_leave_with_their_code(
    tmp_path: Path, number: signal.Signals, code: int, *, is_torn_down: bool
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_busy.py").write_text(_TEST)
    noted = tmp_path / "pid"
    command = [sys.executable, str(_PAUSES), "--longest=0.06", "-pxdist", "-n0", "--dist=no", "test_busy.py"]
    # Few plugins: it starts sooner.
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE) as pauses:
        try:
            _until(lambda: noted.exists() and noted.read_text().endswith("\n"))
            tests = int(noted.read_text())
            _until(lambda: _state(tests) == "T")
            pauses.send_signal(number)
            said, _ = pauses.communicate(timeout=_DEADLINE_S)
            assert (pauses.returncode, _state(tests)) == (code, "gone"), said
            assert (tmp_path / "torn down").exists() == is_torn_down
        finally:
            if noted.exists() and _state(int(noted.read_text())) != "gone":
                os.kill(int(noted.read_text()), signal.SIGKILL)
            pauses.kill()
