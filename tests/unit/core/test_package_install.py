"""Results of installations, and which of them look at the workspace."""

from __future__ import annotations

import pytest

from warren.core.packages.install import NewInstall, _build_execution, build_installed
from warren.domain.values import GIB, Cause, ExecResult, Limits, State


def failed(stderr: bytes, cause: Cause = Cause.EXITED) -> ExecResult:
    hint = "It ended with exit code 2; what it wrote may say why."
    return ExecResult(id="exe_1", exit_code=2, cause=cause, state=State.NONE, stderr=stderr, hint=hint)


@pytest.mark.parametrize(
    ("stderr", "cause"),
    [
        (b"ERROR: [Errno 28] No space left on device", Cause.EXITED),
        (b"error: failed to write: No space left on device (os error 28)", Cause.ERROR),
        (b"npm error ENOSPC", Cause.EXITED),
        (b"", Cause.DISK),
    ],
)
def test_an_installer_without_room_is_told_how_much_there_is(stderr: bytes, cause: Cause) -> None:
    hint = build_installed(failed(stderr, cause), Limits(disk_bytes=3 * GIB)).hint

    assert hint is not None
    assert "3072 MiB" in hint
    assert "limits.disk_bytes" in hint


def test_another_failure_keeps_its_own_hint() -> None:
    assert build_installed(failed(b"no such package"), Limits()).hint == failed(b"").hint


@pytest.mark.parametrize(("ecosystem", "looks"), [("python", False), ("npm", True)])
def test_files_that_npm_writes_are_seen_before_the_next_command(ecosystem: str, looks: bool) -> None:
    new = _build_execution(NewInstall(ecosystem=ecosystem, names=("x",)), ("x",), 60)

    assert new.scan_changes is looks
