"""Between otari's schemas and the domain. Pure: values in, values out."""

from __future__ import annotations

import mimetypes
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warren.core.executions.executions import NewExecution
from warren.domain.errors import Conflict, InvalidRequest, NotFound, OutsideWorkspace
from warren.domain.values import Cause, Echo, ExecKind, Keep, State
from warren.gateway.dialects.details import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.domain.records import Sandbox
    from warren.domain.values import Entry, ExecResult, FileChange
    from warren.settings.groups_apis import OtariSettings

MAX_FILES = 100
"""Files that a result names."""
_CELL = re.compile(r'File "<cell \d+>"')
_WARNING = re.compile(r"^<cell \d+>(?=:\d+: \w*Warning: )", re.MULTILINE)
_LONG_COMMAND = 100_000
"""Characters of a command that surely fit into an argument of a program."""
_LIMITS = {
    Cause.OOM: "memory",
    Cause.CPU: "cpu",
    Cause.DISK: "file_size",
    Cause.PIDS: "processes",
    Cause.OUTPUT: "output",
}
_PRIVATE = re.compile(r"(?:^|/)(?:\.|(?:__pycache__|node_modules|site-packages|venv)/)")
"""Caches, repositories and installed packages."""
_ENVIRONMENT = re.compile(r"(.*/)?pyvenv\.cfg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The outcome of a tool, before it has a shape."""

    stdout: str = ""
    stderr: str = ""
    return_code: int = 0
    execution_id: str | None = None
    cause: str | None = None
    state: str | None = None
    timed_out: bool = False
    truncated: bool = False
    hint: str | None = None
    files: tuple[FileChange, ...] = field(default=())


def render_session(sandbox: Sandbox) -> dict[str, Any]:
    """Show a session."""
    idle_s, life_s = sandbox.idle_timeout_s, sandbox.max_lifetime_s
    return {
        "session_id": sandbox.id,
        "created_at": sandbox.created_at,
        "last_activity_at": sandbox.active_at,
        "idle_timeout_seconds": None if idle_s is None else int(idle_s),
        "max_lifetime_seconds": None if life_s is None else int(life_s),
    }


def choose_image(hint: object, settings: OtariSettings) -> str | None:
    """Return the image of a session: the one that its client named, if the operator allows it; None for the default."""
    allowed = {name: image or name for name, _, image in (each.partition("=") for each in settings.images)}
    if isinstance(hint, str):
        # A tag is a version in some other registry; here a name has one version.
        for name in (hint, hint.rpartition(":")[0]):
            if name in allowed:
                return allowed[name]
    return settings.image or None


def parse_code(code: str, timeout_s: float, output_bytes: int) -> NewExecution:
    """Build the execution of a piece of Python."""
    return NewExecution(
        code=code, timeout_s=timeout_s, echo=Echo.NONE, output_bytes=output_bytes, output_keep=Keep.HEAD
    )


def parse_command(command: str, timeout_s: float, output_bytes: int) -> NewExecution:
    """Build the execution of a command. Raises Refused for one that no shell accepts."""
    if "\0" in command:
        raise Refused(422, "the command holds a NUL character, which no shell takes")
    new = NewExecution(
        kind=ExecKind.SHELL, code=command, timeout_s=timeout_s, output_bytes=output_bytes, output_keep=Keep.HEAD
    )
    if len(command) <= _LONG_COMMAND:
        return new
    # WHY: an argument has at most 128 KiB. Standard input has no limit, but the command then has none of its own.
    argv = ("bash", "-c", 'eval "$(cat)"')
    return NewExecution(
        kind=ExecKind.ARGV,
        argv=argv,
        stdin=command.encode(),
        timeout_s=timeout_s,
        output_bytes=output_bytes,
        output_keep=Keep.HEAD,
    )


def read_python(result: ExecResult, timeout_s: int) -> Ran:
    """Say what a piece of Python did: one line feed at the end is left out, and cells have the name they had."""
    stdout, stderr = _read_output(result)
    traceback = (result.error or {}).get("traceback", "")
    if result.cause is Cause.TIMEOUT:
        # Our own interrupt made Python say that; the client knows it as this.
        said = _explain(stderr.removesuffix(traceback), result)
        return _build(result, stdout, _add(said, f"runner: execution timed out after {timeout_s}s\n"))
    if result.exit_code is None or result.exit_code < 0 or result.cause in {Cause.KILLED, Cause.LOST}:
        limit = _LIMITS.get(result.cause)
        why = f"killed by sandbox limit ({limit})" if limit else "process exited unexpectedly"
        return _build(result, stdout, _add(_explain(stderr, result), f"runner: {why}\n"))
    if traceback and stderr.endswith(traceback):
        stderr = stderr.removesuffix(traceback) + _CELL.sub('File "<sandbox>"', traceback)
    stderr = _WARNING.sub("<sandbox>", stderr)
    if result.cause in _LIMITS:
        stderr = _explain(stderr, result)
    if not result.truncated:
        stdout, stderr = stdout.removesuffix("\n"), stderr.removesuffix("\n")
    return _build(result, stdout, stderr, result.exit_code)


def read_shell(result: ExecResult, timeout_s: int) -> Ran:
    """Say what a command did."""
    stdout, stderr = _read_output(result)
    if result.cause is Cause.TIMEOUT:
        return _build(result, stdout, _add(stderr, f"bash: command timed out after {timeout_s}s\n"))
    if result.exit_code is None:
        return _build(result, stdout, _add(_explain(stderr, result), "bash: process exited unexpectedly\n"))
    if result.cause in _LIMITS:
        stderr = _explain(stderr, result)
    return _build(result, stdout, stderr, result.exit_code)


def _build(result: ExecResult, stdout: str, stderr: str, return_code: int = -1) -> Ran:
    return Ran(
        stdout=stdout,
        stderr=stderr,
        return_code=return_code,
        execution_id=result.id,
        cause=result.cause.value,
        state=result.state.value,
        timed_out=result.cause is Cause.TIMEOUT,
        truncated=result.truncated,
        hint=result.hint,
        files=result.files_changed,
    )


def _read_output(result: ExecResult) -> tuple[str, str]:
    return _mark(result.stdout, result.stdout_bytes), _mark(result.stderr, result.stderr_bytes)


def _mark(kept: bytes, size: int) -> str:
    text = kept.decode("utf-8", "replace")
    left_out = size - len(kept)
    return text if left_out <= 0 else f"{text}\n... [output truncated by sandbox: {left_out} bytes elided]"


def _add(stderr: str, sentence: str) -> str:
    gap = "\n" if stderr and not stderr.endswith("\n") else ""
    return f"{stderr}{gap}{sentence}"


def _explain(stderr: str, result: ExecResult) -> str:
    """Add the hint of a forced end: its limit, and what became of the variables. Gateways drop the field `hint`."""
    said = result.hint
    if result.cause is Cause.TIMEOUT and result.state in {State.KEPT, State.NONE}:
        # Clients know the limit, which they set; that an interrupted call loses nothing is new to them.
        said = "the variables are kept" if result.state is State.KEPT else None
    return _add(stderr, f"sandbox: {said}\n") if said else stderr


def measure(ran: Ran, content: Mapping[str, Any], tool_use_id: str) -> int:
    """Estimate the size of an answer."""
    named = sum(len(each.path) for each in ran.files) + 2 * len(tool_use_id)
    return len(ran.stdout) + len(ran.stderr) + sum(map(len, content.get("lines", ()))) + named


def render_exec(ran: Ran, content: dict[str, Any], tool: str, tool_use_id: str, duration_ms: int) -> dict[str, Any]:
    """Build the answer to one use of a tool."""
    block = {"type": f"{tool}_tool_result", "tool_use_id": tool_use_id, "content": content}
    is_untold = ran.timed_out and "stdout" not in content
    return {
        "tool_use_id": tool_use_id,
        "result_block": block,
        "execution_time_ms": duration_ms,
        "execution_id": ran.execution_id,
        "cause": ran.cause,
        "state": ran.state,
        "timed_out": ran.timed_out,
        "truncated": ran.truncated,
        "hint": ran.hint,
        "files": [{"path": each.path, "action": each.action, "size_bytes": each.size} for each in ran.files],
        # Anthropic's block of a timeout has no field for the output so far.
        **({"stdout": ran.stdout, "stderr": ran.stderr} if is_untold else {}),
    }


def render_result(ran: Ran) -> dict[str, Any]:
    """Build the inner block, which has one type for all three tools."""
    return {
        "type": "code_execution_result",
        "stdout": ran.stdout,
        "stderr": ran.stderr,
        "return_code": ran.return_code,
        "content": [
            {"type": "code_execution_output", "file_id": each.path, "filename": each.path} for each in produced(ran)
        ],
        **cut(ran),
    }


def produced(ran: Ran) -> list[FileChange]:
    """List the first created and changed files."""
    return _list_made(ran)[:MAX_FILES]


def cut(ran: Ran) -> dict[str, Any]:
    """Say that there are more files than `produced` lists; `files` of the answer has them."""
    more = len(_list_made(ran)) - MAX_FILES
    return {"content_left_out": more} if more > 0 else {}


def _list_made(ran: Ran) -> list[FileChange]:
    """List created and changed files, without those of a virtual environment, a repository or a cache."""
    environments = tuple(match[1] for each in ran.files if (match := _ENVIRONMENT.fullmatch(each.path)) and match[1])
    return [
        each
        for each in ran.files
        if each.action != "deleted" and not _PRIVATE.search(each.path) and not each.path.startswith(environments)
    ]


def render_entry(entry: Entry) -> dict[str, Any]:
    """Show a file of a list."""
    return {
        "path": entry.path,
        "size_bytes": entry.size,
        "mime_type": guess_type(entry.path),
        "modified_at": entry.mtime_ns / 1e9,
    }


def guess_type(path: str) -> str | None:
    """Guess what a file is from the ending of its name."""
    # WHY the ending alone: a name that begins with `data:` would be taken for an address that says its type itself.
    return mimetypes.guess_type(f"file{posixpath.splitext(path)[1]}")[0]


def guess_content_type(path: str) -> str:
    """Guess what a file is, for the header that says so."""
    kind = guess_type(path) or "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def explain_path(error: NotFound | Conflict | InvalidRequest, path: str, *, missing: str) -> Refused:
    """Explain in otari's words what is wrong with a path."""
    if isinstance(error, NotFound):
        return Refused(404, f"{missing} not found: {path}")
    if isinstance(error, OutsideWorkspace):
        return Refused(403, f"path escapes workspace: {path}")
    if isinstance(error, Conflict) and "is a folder" in str(error):
        return Refused(400, f"is a directory: {path}")
    return Refused(400, str(error))
