"""What the command line says about a result: the exit code, a short explanation, and the JSON form."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from warren.cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_KILLED, EXIT_TIMEOUT
from warren.cli.quick.hints import MISSING_MODULE, is_unreached
from warren.cli.units import render_duration, render_size
from warren.domain.values import Cause

if TYPE_CHECKING:
    from warren import Result
    from warren.domain.values import ExecResult

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
    Cause.LOST: "the sandbox went away",
}
_MODULE = re.compile(r"No module named '([\w.-]{1,100})'")
_REFUSED = re.compile(r"(A connection|\d+ connections) (was|were|failed)")
"""How a service begins a hint about egress."""
_IN_BYTES = frozenset({Cause.OOM, Cause.DISK, Cause.OUTPUT})
_IN_MILLISECONDS = frozenset({Cause.TIMEOUT, Cause.CPU})


class Ended(Protocol):
    """How something ended: what an engine says of it, or a service."""

    @property
    def cause(self) -> str | None:
        """Why."""

    @property
    def exit_code(self) -> int | None:
        """What the program said."""

    @property
    def limit(self) -> float | None:
        """The limit that it ran into."""

    @property
    def peak(self) -> float | None:
        """The most that it used of what is limited."""

    @property
    def hint(self) -> str | None:
        """What to do next."""

    @property
    def error(self) -> object:
        """The exception that ended it."""

    @property
    def stderr(self) -> bytes | str:
        """What was kept of its standard error."""


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
    # Whoever pressed Ctrl-C need not hear that it was pressed.
    return f"{line}\n{result.hint}" if result.hint and result.cause != Cause.INTERRUPTED else line


def _advise(result: Ended, sandbox: str | None) -> str | None:
    """Say what to type where a module is missing or a host was not reached; `sandbox` is there for the next command."""
    if exit_code(result) == 0:
        return None
    error: Any = result.error
    name, value = (error["name"], error["value"]) if isinstance(error, Mapping) else _split(error)
    if name == MISSING_MODULE and (found := _MODULE.search(value)):
        return _advise_module(found[1].partition(".")[0], sandbox)
    grant = f"`warren egress set {sandbox} packages`, or `warren egress grant {sandbox} HOST`"
    remedy = "--egress packages, or --allow HOST" if sandbox is None else grant
    if result.hint and _REFUSED.match(result.hint):
        return f"{result.hint}\nto let it: {remedy}"
    if isinstance(result.stderr, bytes) and is_unreached(result.stderr):
        return f"it may reach no host; to let it: {remedy}"
    return None


def _split(error: Any) -> tuple[str, str]:
    return ("", "") if error is None else (error.name, error.value)


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


def explain_gap(missing: int, way: str) -> str:
    """Say how much of its output was never printed, and the way to have all of it."""
    return (
        f"warren: {missing:,} bytes of its output are missing above: it wrote faster than they were read; "
        f"let it write to a file and fetch that with {way}"
    )


def as_json(result: ExecResult) -> dict[str, Any]:
    """Build plain JSON of a result; bytes that are no text are replaced, and the true sizes stand beside them."""
    return {
        "id": result.id,
        "ok": result.ok,
        "exit_code": exit_code(result),
        "program_exit_code": result.exit_code,
        "cause": result.cause.value,
        "state": result.state.value,
        "limit": result.limit,
        "peak": result.peak,
        "stdout": result.stdout.decode("utf-8", "replace"),
        "stderr": result.stderr.decode("utf-8", "replace"),
        "stdout_bytes": result.stdout_bytes,
        "stderr_bytes": result.stderr_bytes,
        "truncated": result.truncated,
        "displays": [{"data": dict(d.data), "is_result": d.is_result} for d in result.displays],
        "error": dict(result.error) if result.error else None,
        "files_changed": [{"path": c.path, "action": c.action, "size": c.size} for c in result.files_changed],
        "files_changed_complete": result.files_changed_complete,
        "duration_ms": result.duration_ms,
        "cpu_ms": result.cpu_ms,
        "hint": result.hint,
        "notes": list(result.notes),
    }


def result_as_json(result: Result) -> dict[str, Any]:
    """Build the same of what a service says."""
    return {
        "id": result.execution_id,
        "sandbox_id": result.sandbox_id,
        "status": result.status,
        "ok": result.ok,
        "exit_code": exit_code(result) if result.status == "finished" else None,
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
        "error": dataclasses.asdict(result.error) if result.error else None,
        "files_changed": [{"path": c.path, "action": c.action, "size": c.size_bytes} for c in result.files_changed],
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
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
