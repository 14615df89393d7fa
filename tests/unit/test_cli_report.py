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


def test_a_missing_module_is_named_with_the_command_that_brings_it() -> None:
    error = {"name": "ModuleNotFoundError", "value": "No module named 'torch.nn'", "traceback": ""}
    result = ExecResult(id="exe_1", exit_code=1, cause=Cause.ERROR, state=State.NONE, error=error)

    assert "warren sandbox install SANDBOX torch`" in (explain(result) or "")
    assert "warren sandbox install sbx_1 torch`" in (explain(result, "sbx_1") or "")


def test_a_host_that_is_not_reached_is_explained_with_the_option_that_allows_it() -> None:
    unreached = ExecResult(
        id="exe_1", exit_code=6, cause=Cause.EXITED, state=State.NONE, stderr=b"curl: (6) Could not resolve host: x\n"
    )
    refused = _result(Cause.EXITED, 1, hint="A connection was refused: set its egress to packages.")

    assert explain(unreached) == "it may reach no host; to let it: --egress packages, or --allow HOST"
    assert (explain(refused) or "").splitlines() == [refused.hint, "to let it: --egress packages, or --allow HOST"]
    assert "warren egress set sbx_1 packages" in (explain(refused, "sbx_1") or "")
    assert explain(_result(Cause.EXITED, 0, hint=refused.hint)) is None


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
