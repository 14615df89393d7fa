"""The report of a result: exit code, explanation, JSON form."""

from __future__ import annotations

import dataclasses
import re
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warren.cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_KILLED, EXIT_TIMEOUT
from warren.cli.quick.hints import MISSING_MODULE, is_unreached
from warren.cli.units import render_duration, render_size
from warren.domain.values import Cause

if TYPE_CHECKING:
    from warren import Result
    from warren.domain.values import ExecResult

    Ended = ExecResult | Result

_EXIT_CODES: dict[str, int] = {Cause.TIMEOUT: EXIT_TIMEOUT, Cause.OOM: EXIT_KILLED, Cause.INTERRUPTED: EXIT_INTERRUPTED}
_WHAT: dict[str, str] = {
    Cause.TIMEOUT: "it ran out of time",
    Cause.INTERRUPTED: "it was interrupted",
    Cause.OOM: "it ran out of memory",
    Cause.CPU: "it used up its processor time",
    Cause.PIDS: "it started too many processes",
    Cause.DISK: "the disk is full",
    Cause.OUTPUT: "it wrote too much output",
    Cause.KILLED: "it was killed",
    Cause.LOST: "the sandbox was lost",
}
_MODULE = re.compile(r"No module named '([\w.-]{1,100})'")
_REFUSED = re.compile(r"(A connection|\d+ connections) (was|were|failed)")
"""How a service begins a hint about egress."""
_IN_BYTES = frozenset({Cause.OOM, Cause.DISK, Cause.OUTPUT})
_IN_MILLISECONDS = frozenset({Cause.TIMEOUT, Cause.CPU})


def exit_code(result: Ended) -> int:
    """Choose our exit code: the program's own, or the one that shells use for its fate."""
    if (known := _EXIT_CODES.get(result.cause or "")) is not None:
        return known
    code = result.exit_code
    if code is None:
        return EXIT_KILLED if result.cause in {Cause.KILLED, Cause.LOST} else EXIT_FAILED
    if code < 0:
        return 128 - code
    return code or (0 if result.cause == Cause.EXITED else EXIT_FAILED)


def explain(result: Ended, sandbox: str | None = None) -> str | None:
    """Say in a line or two why it ended; of a program that ended by itself, only what to type next, if anything."""
    what = _WHAT.get(result.cause or "")
    if what is None:
        return _advise(result, sandbox)
    if result.cause == Cause.KILLED and result.exit_code is not None:
        what = f"it was killed by {_signal_name(-result.exit_code)}" if result.exit_code < 0 else "it ended abruptly"
    parts = [what]
    if result.limit is not None:
        parts.append(f"limit {_amount(result.cause, result.limit)}")
    if result.peak is not None:
        parts.append(f"peak {_amount(result.cause, result.peak)}")
    line = ", ".join(parts)
    # The person who pressed Ctrl-C knows.
    return f"{line}\n{result.hint}" if result.hint and result.cause != Cause.INTERRUPTED else line


def _advise(result: Ended, sandbox: str | None) -> str | None:
    """Say what to type where a module is missing or a host was not reached; `sandbox` is there for the next command."""
    if exit_code(result) == 0:
        return None
    error = result.error
    if isinstance(error, Mapping):
        name, value = error["name"], error["value"]
    else:
        name, value = ("", "") if error is None else (error.name, error.value)
    if name == MISSING_MODULE and (found := _MODULE.search(value)):
        return _advise_module(found[1].partition(".")[0], sandbox)
    grant = f"`warren egress set {sandbox} packages`, or `warren egress grant {sandbox} HOST`"
    remedy = "--egress packages, or --allow HOST" if sandbox is None else grant
    if result.hint and _REFUSED.match(result.hint):
        return f"{result.hint}\nto let it: {remedy}"
    if isinstance(result.stderr, bytes) and is_unreached(result.stderr):
        return f"it may reach no host; to let it: {remedy}"
    return None


def _advise_module(module: str, sandbox: str | None) -> str:
    if sandbox is None:
        return (
            f"this image has no module {module}: `warren image list` shows the others; a sandbox that stays can have "
            f"it: `warren sandbox create --egress packages`, then `warren sandbox install SANDBOX {module}`"
        )
    return (
        f"this image has no module {module}: `warren sandbox install {sandbox} {module}`, "
        f"after `warren egress set {sandbox} packages`"
    )


def print_end(result: Ended, printed: int, way: str, sandbox: str | None = None) -> bool:
    """Print why it ended, its notes, and how much of its output was lost; `way` is how to get all of it.

    Returns whether output was lost: a program does not wait for a slow reader.
    """
    for line in (explain(result, sandbox) or "").splitlines():
        print(f"warren: {line}", file=sys.stderr)
    for note in result.notes:
        print(f"warren: note: {note}", file=sys.stderr)
    missing = result.stdout_bytes + result.stderr_bytes - printed
    if missing > 0:
        print(
            f"warren: {missing:,} bytes of its output are missing above: it wrote faster than they were read; "
            f"let it write to a file and fetch that with {way}",
            file=sys.stderr,
        )
    return missing > 0


def as_json(result: ExecResult) -> dict[str, Any]:
    """Build plain JSON of a result; bytes that are not UTF-8 are replaced, and the true sizes are given."""
    return {
        "id": result.id,
        **_shared_json(result),
        "stdout": result.stdout.decode("utf-8", "replace"),
        "stderr": result.stderr.decode("utf-8", "replace"),
        "error": dict(result.error) if result.error else None,
        "files_changed": [{"path": c.path, "action": c.action, "size": c.size} for c in result.files_changed],
    }


def result_as_json(result: Result) -> dict[str, Any]:
    """Build the same from the answer of a service."""
    return {
        "id": result.execution_id,
        "sandbox_id": result.sandbox_id,
        "status": result.status,
        **_shared_json(result),
        "exit_code": exit_code(result) if result.status == "finished" else None,
        "error": dataclasses.asdict(result.error) if result.error else None,
        "files_changed": [{"path": c.path, "action": c.action, "size": c.size_bytes} for c in result.files_changed],
    }


def _shared_json(result: Ended) -> dict[str, Any]:
    return {
        "ok": result.ok,
        "exit_code": exit_code(result),
        "program_exit_code": result.exit_code,
        "cause": result.cause,
        "state": result.state,
        "limit": result.limit,
        "peak": result.peak,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "stdout_bytes": result.stdout_bytes,
        "stderr_bytes": result.stderr_bytes,
        "truncated": result.truncated,
        "displays": [{"data": dict(each.data), "is_result": each.is_result} for each in result.displays],
        "error": result.error,
        "files_changed": (),
        "files_changed_complete": result.files_changed_complete,
        "duration_ms": result.duration_ms,
        "cpu_ms": result.cpu_ms,
        "hint": result.hint,
        "notes": list(result.notes),
    }


def _amount(cause: str | None, value: float) -> str:
    if cause in _IN_BYTES:
        return render_size(value)
    return render_duration(value / 1000) if cause in _IN_MILLISECONDS else f"{value:g}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
