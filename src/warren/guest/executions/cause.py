"""Cause: why an execution ended, from our own requests, from facts, and last from claims of the program.

Pure. The order of the rules is the order of certainty: what the agent did, what the operating system counted, how the
process ended, and then the claim of the kernel.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.system.facts import Disk

_NO_SPACE = re.compile("no space|quota|full", re.IGNORECASE)
_MODULE = re.compile(r"No module named '([\w.-]{1,100})'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """All facts and claims about the end of an execution."""

    kind: str = "shell"
    exit_code: int | None = 0
    """Of the process; -N for signal N; for a cell whose kernel lives, the code that it claims."""
    died: bool = True
    """Whether the process that ran it is gone; a cell normally leaves its kernel alive."""
    status: str | None = None
    """The kernel's claim: ok, error, interrupted or exit."""
    error: dict[str, str] | None = None
    asked: str | None = None
    """Why the agent ended it: timeout, idle, output, killed, restarted or broken."""
    interrupted: bool = False
    """Whether an interrupt was requested."""
    timeout_ms: float | None = None
    duration_ms: float = 0.0
    output_max: int = 0
    output_total: int = 0
    oom_rose: bool = False
    pids_rose: bool = False
    disks: list[Disk] = field(default_factory=list)
    limits: dict[str, float] = field(default_factory=dict)
    memory_peak: int | None = None
    pids_now: int | None = None
    state: str = "none"
    cells_back: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """The cause, its limit and peak, and one sentence that names the remedy."""

    cause: str
    limit: float | None = None
    peak: float | None = None
    hint: str | None = None


def find_cause(ending: Ending) -> Explanation:
    """Apply the first rule that matches."""
    for rule in _RULES:
        found = rule(ending)
        if found is not None:
            tail = _about_state(ending)
            hint = " ".join(part for part in (found.hint, tail) if part) or None
            return Explanation(found.cause, found.limit, found.peak, hint)
    return Explanation("exited", hint=_about_exit(ending))


def _asked(end: Ending) -> Explanation | None:
    if end.asked in ("timeout", "idle"):
        limit = f"{(end.timeout_ms or 0) / 1000:g} s"
        hint = f"It wrote nothing for {limit}: raise the idle timeout, or print progress now and then."
        if end.asked == "timeout":
            remedy = "raise the timeout, or start long work in the background and look at it later."
            hint = f"It ran longer than its timeout of {limit}: {remedy}"
        return Explanation("timeout", end.timeout_ms, end.duration_ms, hint)
    if end.asked == "output":
        hint = f"It wrote more than {_bytes(end.output_max)}: print less, or write to a file and read parts of it."
        return Explanation("output", end.output_max, end.output_total, hint)
    if end.asked is not None:
        cause, hint = _ASKED[end.asked]
        return Explanation(cause, hint=hint)
    return None


_ASKED = {
    "killed": ("killed", "It was killed on request."),
    "restarted": ("interrupted", "Its kernel was restarted or deleted on request."),
    "broken": ("killed", "Its kernel's control socket was closed or misused, so the kernel was ended."),
}


def _interrupt(end: Ending) -> Explanation | None:
    if end.interrupted and (end.status == "interrupted" or end.exit_code in (-signal.SIGINT, 128 + signal.SIGINT)):
        return Explanation("interrupted", hint="It was interrupted on request.")
    return None


def _memory(end: Ending) -> Explanation | None:
    killed = end.died and end.exit_code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    if not (end.oom_rose and killed):
        return None
    limit = end.limits.get("memory_bytes")
    peak = f" (peak {_bytes(end.memory_peak)})" if end.memory_peak is not None else ""
    bound = f" of {_bytes(limit)}" if limit is not None else ""
    hint = (
        f"It needed more memory than the limit{bound}{peak}: work on smaller pieces, or ask for a sandbox with more "
        "memory."
    )
    return Explanation("oom", limit, end.memory_peak, hint)


def _cpu(end: Ending) -> Explanation | None:
    if end.died and end.exit_code in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
        return Explanation("cpu", hint="It used up its processor time: do less work in one call, or raise the limit.")
    return None


def _pids(end: Ending) -> Explanation | None:
    if not end.pids_rose or end.exit_code == 0:
        return None
    limit = end.limits.get("pids")
    bound = f" of {limit:.0f}" if limit is not None else ""
    hint = (
        f"It wanted more processes and threads than the limit{bound}: start fewer workers, end leftover processes, or "
        "raise the limit."
    )
    return Explanation("pids", limit, end.pids_now, hint)


def _disk(end: Ending) -> Explanation | None:
    full = next((disk for disk in end.disks if disk.full), None)
    if full is None or end.exit_code == 0 or _has_other_cause(end):
        return None
    used = full.total_bytes - full.free_bytes
    what = "room" if full.out_of_bytes else "room for more files"
    hint = f"{full.path} has no {what} left ({_bytes(used)} used): delete files there, or raise the disk limit."
    return Explanation("disk", full.total_bytes, used, hint)


def _has_other_cause(end: Ending) -> bool:
    """Whether a failure while a disk is full says that it is about something else."""
    if end.error is not None:
        return not _NO_SPACE.search(end.error.get("value", ""))
    return end.kind != "cell" and end.exit_code in (126, 127)


def _died(end: Ending) -> Explanation | None:
    if end.kind == "cell":
        if not end.died:
            return None
        if end.exit_code is None:
            return Explanation("killed", hint="It never ran, because no kernel could be started: try again.")
        how = _by_signal(end.exit_code) or f"ended its process with exit code {end.exit_code}"
    elif (by := _by_signal(end.exit_code)) is not None:
        how = by
    else:
        return None
    return Explanation("killed", hint=f"The program {how}{_why_killed(end)}.")


def _error(end: Ending) -> Explanation | None:
    if end.status not in ("error", "interrupted"):
        return None
    return Explanation("error", hint=_about_error(end))


_RULES: tuple[Callable[[Ending], Explanation | None], ...] = (
    _asked,
    _interrupt,
    _memory,
    _cpu,
    _pids,
    _disk,
    _died,
    _error,
)


def _by_signal(exit_code: int | None) -> str | None:
    if exit_code is None or exit_code >= 0:
        return None
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"was ended by {name}"


def _why_killed(end: Ending) -> str:
    if end.exit_code in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE, -signal.SIGABRT):
        return ", a crash in native code: look at the last call into an extension or a compiled program"
    if end.exit_code == -signal.SIGSYS:
        return ", a system call that a sandbox does not allow"
    if end.exit_code == -signal.SIGKILL:
        return ", which something inside the sandbox sent: look for a kill in the code"
    return ""


def _about_error(end: Ending) -> str:
    name = (end.error or {}).get("name", "")
    value = (end.error or {}).get("value", "")
    if end.oom_rose:
        return _CHILD_OOM
    if name == "ModuleNotFoundError" and (found := _MODULE.search(value)):
        module = found.group(1)
        return (
            f"This image has no module {module}: run `%pip install {module.partition('.')[0]}` (its package may have "
            "another name), or use an image that has it."
        )
    return _ERROR_HINTS.get(name, "The traceback says where; fix the code and run it again, variables are kept.")


_CHILD_OOM = "A process that it had started was ended because memory ran out: start fewer, or raise the memory limit."
_ERROR_HINTS = {
    "EOFError": "It asked for input and there was none: pass the answers as stdin.",
    "FileNotFoundError": "There is no such file: list the workspace, relative paths start in the working folder.",
    "IndentationError": "Nothing was run: fix the indentation.",
    "MemoryError": "An allocation was refused: work on smaller pieces, or ask for a sandbox with more memory.",
    "NameError": "That name is not defined in this kernel: run the cell that defines it first, or correct it.",
    "PermissionError": "Only the workspace and /tmp can be written to: use a path there.",
    "SyntaxError": "Nothing was run: fix the syntax.",
}


def _about_exit(end: Ending) -> str | None:
    code = end.exit_code
    if not code:
        return None
    if end.oom_rose:
        return _CHILD_OOM
    if end.kind != "cell" and code == 127:
        return "The command was not found: check its name, or use an image that has it."
    if end.kind != "cell" and code == 126:
        return "The command could not be run: check that it is an executable file."
    if 128 < code <= 128 + 64 and (how := _by_signal(128 - code)):
        return f"A program {how}; what it wrote may say more."
    return f"It ended with exit code {code}; what it wrote may say why."


def _about_state(end: Ending) -> str | None:
    if end.state == "lost":
        return "The kernel's variables are lost: run the cells that made them again."
    if end.state != "rolled_back":
        return None
    when = "the previous cell" if end.cells_back == 0 else f"the cell {end.cells_back + 1} before this one"
    return f"Python variables are as they were after {when}; files and child processes are not rolled back."


def _bytes(size: float) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:.0f} bytes"
