"""Every cause, from the facts that make it, with a sentence that says what to do."""

from __future__ import annotations

import pytest

from warren.guest.executions.cause import Ending, find_cause
from warren.guest.system.facts import Disk

MIB = 1 << 20
LIMITS = {"memory_bytes": 512.0 * MIB, "pids": 64.0}
FULL = [Disk("/workspace", 100 * MIB, 0, 1000), Disk("/tmp", 100 * MIB, 50 * MIB, None)]
_ENOSPC = "[Errno 28] No space left on device"


def _raised(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value, "traceback": ""}


@pytest.mark.parametrize(
    ("ending", "cause", "limit", "peak", "words"),
    [
        (Ending(exit_code=0), "exited", None, None, None),
        (Ending(exit_code=3), "exited", None, None, "exit code 3"),
        (Ending(exit_code=127), "exited", None, None, "not found"),
        (Ending(exit_code=126), "exited", None, None, "executable"),
        (Ending(exit_code=139), "exited", None, None, "SIGSEGV"),
        (
            Ending(exit_code=-9, asked="timeout", timeout_ms=2000, duration_ms=2010),
            "timeout",
            2000,
            2010,
            "raise the timeout",
        ),
        (Ending(exit_code=-2, asked="idle", timeout_ms=500, duration_ms=900), "timeout", 500, 900, "wrote nothing"),
        (Ending(exit_code=-9, asked="output", output_max=10, output_total=99), "output", 10, 99, "print less"),
        (Ending(exit_code=-9, asked="killed"), "killed", None, None, "on request"),
        (Ending(kind="cell", exit_code=-9, asked="restarted"), "interrupted", None, None, "restarted"),
        (Ending(kind="cell", exit_code=-9, asked="broken"), "killed", None, None, "control socket"),
        (Ending(exit_code=-2, interrupted=True), "interrupted", None, None, "on request"),
        (Ending(exit_code=0, interrupted=True), "exited", None, None, None),
        (
            Ending(exit_code=-9, oom_rose=True, limits=LIMITS, memory_peak=511 * MIB),
            "oom",
            512 * MIB,
            511 * MIB,
            "512 MiB (peak 511 MiB)",
        ),
        (Ending(exit_code=137, oom_rose=True, limits=LIMITS), "oom", 512 * MIB, None, "more memory"),
        (Ending(exit_code=-9, oom_rose=False, limits=LIMITS), "killed", None, None, "SIGKILL"),
        (Ending(exit_code=1, oom_rose=True), "exited", None, None, "memory ran out"),
        (Ending(exit_code=-24), "cpu", None, None, "processor time"),
        (Ending(exit_code=1, pids_rose=True, limits=LIMITS, pids_now=60), "pids", 64, 60, "fewer workers"),
        (Ending(exit_code=0, pids_rose=True, limits=LIMITS), "exited", None, None, None),
        (Ending(exit_code=1, disks=FULL), "disk", 100 * MIB, 100 * MIB, "/workspace has no room left"),
        (Ending(exit_code=0, disks=FULL), "exited", None, None, None),
        (Ending(exit_code=127, disks=FULL), "exited", None, None, "not found"),
        (
            Ending(kind="cell", exit_code=1, died=False, status="error", disks=FULL, error=_raised("OSError", _ENOSPC)),
            "disk",
            100 * MIB,
            100 * MIB,
            "/workspace has no room left",
        ),
        (
            Ending(kind="cell", exit_code=1, died=False, status="error", disks=FULL, error=_raised("KeyError", "'x'")),
            "error",
            None,
            None,
            "traceback",
        ),
        (Ending(exit_code=-11), "killed", None, None, "native code"),
        (Ending(exit_code=-31), "killed", None, None, "does not allow"),
        (Ending(kind="cell", exit_code=3, died=True), "killed", None, None, "exit code 3"),
        (Ending(kind="cell", exit_code=None, died=True), "killed", None, None, "no kernel could be started"),
        (Ending(kind="cell", exit_code=0, died=False, status="ok"), "exited", None, None, None),
        (Ending(kind="cell", exit_code=1, died=False, status="error"), "error", None, None, "traceback"),
        (Ending(kind="cell", exit_code=4, died=False, status="exit"), "exited", None, None, "exit code 4"),
    ],
)
def test_the_cause_follows_from_the_facts(
    ending: Ending, cause: str, limit: float | None, peak: float | None, words: str | None
) -> None:
    found = find_cause(ending)

    assert (found.cause, found.limit, found.peak) == (cause, limit, peak)
    if words is None:
        assert found.hint is None
    else:
        assert found.hint is not None
        assert words in found.hint
        assert found.hint.endswith(".")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ModuleNotFoundError", "No module named 'sklearn.svm'", "pip install sklearn`"),
        ("EOFError", "EOF when reading a line", "pass the answers as stdin"),
        ("MemoryError", "", "smaller pieces"),
        ("SyntaxError", "invalid syntax", "Nothing was run"),
        ("ValueError", "x", "traceback"),
    ],
)
def test_an_exception_gets_the_hint_that_fits_it(name: str, value: str, words: str) -> None:
    error = {"name": name, "value": value, "traceback": ""}
    found = find_cause(Ending(kind="cell", exit_code=1, died=False, status="error", error=error))

    assert found.cause == "error"
    assert words in (found.hint or "")


def test_a_claim_cannot_dress_a_timeout_as_success() -> None:
    found = find_cause(Ending(kind="cell", exit_code=0, died=False, status="ok", asked="timeout", timeout_ms=100))

    assert found.cause == "timeout"


def test_the_hint_says_what_became_of_the_variables() -> None:
    back = find_cause(Ending(kind="cell", exit_code=-11, state="rolled_back"))
    further = find_cause(Ending(kind="cell", exit_code=-11, state="rolled_back", cells_back=2))
    lost = find_cause(Ending(kind="cell", exit_code=-11, state="lost"))

    assert "after the previous cell; files and child processes are not rolled back" in (back.hint or "")
    assert "the cell 3 before this one" in (further.hint or "")
    assert "variables are lost" in (lost.hint or "")


def test_no_room_for_more_files_is_distinguished_from_no_room() -> None:
    found = find_cause(Ending(exit_code=1, disks=[Disk("/tmp", 100 * MIB, 50 * MIB, 0)]))

    assert found.cause == "disk"
    assert "no room for more files" in (found.hint or "")
