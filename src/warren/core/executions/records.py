"""Record and audit entry of an execution: both bounded, and neither holds its environment, which may be secret."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from warren.domain.records import Caller, Execution, Principal
from warren.domain.values import KIB, Cause, ExecKind, ExecResult, State
from warren.guest.wire.output import HeadTail

if TYPE_CHECKING:
    from warren.core.executions.request import NewExecution
    from warren.core.policy.policy import Policy
    from warren.domain.records import Sandbox
    from warren.domain.values import Display

DISPLAY_BYTES = 128 * KIB
"""Kept of all displays of an execution together."""
AUDITED_CHANGES = 100


def build_started(caller: Caller, sandbox: Sandbox, new: NewExecution, execution_id: str, policy: Policy) -> Execution:
    """Build the record of an execution that has just begun."""
    code = " ".join(new.argv) if new.kind is ExecKind.ARGV else new.code
    return Execution(
        id=execution_id,
        sandbox_id=sandbox.id,
        owner=sandbox.owner,
        kind=new.kind,
        kernel=new.kernel if new.kind is ExecKind.CELL else None,
        code=cut_text(code, policy.output_bytes),
        background=new.background,
        request_id=caller.request_id,
        started_at=time.time(),
    )


def build_adopted(sandbox: Sandbox, execution_id: str) -> Execution:
    """Build the record of an execution that an agent knows and the store does not: its code is not known."""
    return Execution(
        id=execution_id,
        sandbox_id=sandbox.id,
        owner=sandbox.owner,
        kind=ExecKind.CELL,
        kernel=None,
        code="",
        background=True,
        request_id="",
        started_at=time.time(),
    )


def build_finished(execution: Execution, result: ExecResult) -> Execution:
    """Add its result to an execution."""
    return replace(execution, result=result, finished_at=time.time())


def build_lost(execution: Execution, why: str, *, stdout: bytes = b"", stderr: bytes = b"") -> ExecResult:
    """Build the result of an execution that was lost with its sandbox."""
    has_kernel = execution.kind is ExecKind.CELL
    return ExecResult(
        id=execution.id,
        exit_code=None,
        cause=Cause.LOST,
        state=State.LOST if has_kernel else State.NONE,
        stdout=stdout,
        stderr=stderr,
        stdout_bytes=len(stdout),
        stderr_bytes=len(stderr),
        files_changed_complete=False,
        duration_ms=_elapsed_ms(execution),
        hint=f"How it ended is not known: {why}. Look at the workspace to see what it did, then run it again.",
    )


def build_refused(execution: Execution, why: str) -> ExecResult:
    """Build the result of an execution that never ran."""
    return ExecResult(
        id=execution.id,
        exit_code=None,
        cause=Cause.INTERRUPTED,
        state=State.KEPT if execution.kind is ExecKind.CELL else State.NONE,
        duration_ms=_elapsed_ms(execution),
        hint=f"It never ran: {why}.",
    )


def add_refused(result: ExecResult, count: int, why: str) -> ExecResult:
    """Add a hint that connections were refused. A hint about a forced end stays first."""
    sentence = f"{'A connection was' if count == 1 else f'{count} connections were'} refused: {why}"
    return _add_sentence(result, sentence)


def add_failed(result: ExecResult, why: str) -> ExecResult:
    """Add a hint that an allowed connection failed."""
    return _add_sentence(result, f"A connection failed: {why}")


def _add_sentence(result: ExecResult, sentence: str) -> ExecResult:
    parts = (sentence, result.hint) if result.cause in {Cause.EXITED, Cause.ERROR} else (result.hint, sentence)
    return replace(result, hint=" ".join(part for part in parts if part))


def build_kept(execution: Execution, policy: Policy) -> Execution:
    """Cut a finished execution to the size that the store keeps."""
    result = execution.result
    assert result is not None
    stdout, stderr = cut(result.stdout, policy.output_bytes), cut(result.stderr, policy.output_bytes)
    displays, dropped = _cut_displays(result.displays)
    if stdout is result.stdout and stderr is result.stderr and not dropped:
        return execution
    notes = result.notes
    if dropped:
        notes = (*notes, f"{dropped} of {len(result.displays)} displays were too large to be kept.")
    truncated = result.truncated or stdout is not result.stdout or stderr is not result.stderr
    kept = replace(result, stdout=stdout, stderr=stderr, displays=displays, notes=notes, truncated=truncated)
    return replace(execution, result=kept)


def build_details(execution: Execution, policy: Policy) -> dict[str, object]:
    """Build the details of a finished execution for its audit entry."""
    result = execution.result
    assert result is not None
    most = policy.audit_output_bytes
    return {
        "kind": execution.kind.value,
        "kernel": execution.kernel,
        "exit_code": result.exit_code,
        "cause": result.cause.value,
        "state": result.state.value,
        "duration_ms": round(result.duration_ms, 3),
        "cpu_ms": round(result.cpu_ms, 3),
        "code": cut_text(execution.code, most),
        "stdout": cut(result.stdout, most).decode("utf-8", "replace"),
        "stderr": cut(result.stderr, most).decode("utf-8", "replace"),
        "stdout_bytes": result.stdout_bytes,
        "stderr_bytes": result.stderr_bytes,
        "files_changed": [
            {"path": one.path.encode("utf-8", "replace").decode(), "action": one.action, "size": one.size}
            for one in result.files_changed[:AUDITED_CHANGES]
        ],
        "files_changed_count": len(result.files_changed),
    }


def build_caller(execution: Execution) -> Caller:
    """Build the caller of an execution from its record, where the real one is gone."""
    principal = Principal(subject=execution.owner.subject, tenant=execution.owner.tenant)
    return Caller(principal=principal, request_id=execution.request_id)


def cut(data: bytes, most: int) -> bytes:
    """Keep the head and the tail of an output, with a mark between; the same object when all of it fits."""
    if len(data) <= most:
        return data
    kept = HeadTail(most)
    kept.add(data)
    return kept.kept()


def cut_text(text: str, most: int) -> str:
    """Keep the head and the tail of a text, as storable UTF-8."""
    if text.isascii() and len(text) <= most:
        return text
    return cut(text.encode("utf-8", "replace"), most).decode("utf-8", "replace")


def _cut_displays(displays: tuple[Display, ...]) -> tuple[tuple[Display, ...], int]:
    kept, room = [], DISPLAY_BYTES
    for display in displays:
        size = sum(len(mime) + len(value) for mime, value in display.data.items()) + len(str(display.metadata))
        if size <= room:
            kept.append(display)
            room -= size
    return tuple(kept), len(displays) - len(kept)


def _elapsed_ms(execution: Execution) -> float:
    return max(0.0, (time.time() - execution.started_at) * 1000)
