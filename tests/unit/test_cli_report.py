"""What the command line makes of a result."""

from __future__ import annotations

import json

import pytest

from warren.cli.terminal.report import as_json, exit_code, explain
from warren.domain.values import Cause, ExecResult, FileChange, State


def _result(cause: Cause, code: int | None, *, limit: float | None = None, hint: str | None = None) -> ExecResult:
    return ExecResult(id="exe_1", exit_code=code, cause=cause, state=State.NONE, limit=limit, peak=limit, hint=hint)


@pytest.mark.parametrize(
    ("cause", "code", "expected"),
    [
        (Cause.EXITED, 0, 0),
        (Cause.EXITED, 7, 7),
        (Cause.ERROR, 1, 1),
        (Cause.TIMEOUT, -9, 124),
        (Cause.OOM, -9, 137),
        (Cause.INTERRUPTED, 1, 130),
        (Cause.KILLED, -11, 139),
        (Cause.KILLED, 3, 3),
        (Cause.KILLED, None, 137),
        (Cause.LOST, None, 137),
        (Cause.DISK, 0, 1),
        (Cause.OUTPUT, -9, 137),
    ],
)
def test_the_exit_code_is_the_programs_or_that_of_its_fate(cause: Cause, code: int | None, expected: int) -> None:
    assert exit_code(_result(cause, code)) == expected


def test_a_program_that_ended_by_itself_needs_no_explanation() -> None:
    assert explain(_result(Cause.EXITED, 3)) is None
    assert explain(_result(Cause.ERROR, 1)) is None


def test_an_explanation_has_cause_limit_peak_and_hint() -> None:
    text = explain(_result(Cause.OOM, -9, limit=512 << 20, hint="Use less."))

    assert text == "it ran out of memory, limit 512 MiB, peak 512 MiB\nUse less."
    assert explain(_result(Cause.TIMEOUT, -9, limit=30_000)) == "it ran out of time, limit 30 s, peak 30 s"
    assert explain(_result(Cause.KILLED, -11)) == "it was killed by SIGSEGV"


def test_every_cause_is_explained_or_needs_none() -> None:
    silent = {cause for cause in Cause if explain(_result(cause, None)) is None}

    assert silent == {Cause.EXITED, Cause.ERROR}


def test_the_json_form_survives_output_that_is_no_text() -> None:
    result = ExecResult(
        id="exe_1",
        exit_code=0,
        cause=Cause.EXITED,
        state=State.NONE,
        stdout=b"\xff\x00ok",
        files_changed=(FileChange("a", "created", 1),),
    )

    text = json.dumps(as_json(result))

    assert json.loads(text)["stdout"].endswith("ok")
    assert json.loads(text)["files_changed"] == [{"path": "a", "action": "created", "size": 1}]
