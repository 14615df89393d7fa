"""Between Onyx's schemas and the domain. Pure: values in, values out."""

from __future__ import annotations

import codecs
import posixpath
from typing import TYPE_CHECKING, Any

from warren.core.executions.executions import NewExecution
from warren.domain.values import MIB, Cause, Echo, ExecKind, Keep
from warren.gateway.api.streaming import encode_event
from warren.gateway.dialects.details import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.core.executions.jobs import JobResult
    from warren.domain.records import Sandbox, StoredFile
    from warren.domain.values import Entry, Event, ExecResult
    from warren.gateway.dialects.onyx import schemas
    from warren.settings.groups_apis import OnyxSettings

ENTRY = "__main__.py"
"""The name of a program in its workspace."""
CUT = "\n...[truncated]"
_CUT_BYTES = 32
_NAMED = 10
_ENV = {
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONIOENCODING": "utf-8",
}
"""Unbuffered output survives a kill, and no bytecode is among the files of a program."""
_SAID = frozenset({Cause.OOM, Cause.CPU, Cause.OUTPUT, Cause.PIDS, Cause.DISK})
"""Causes that a program cannot tell by itself."""


def check_timeout(timeout_ms: int, settings: OnyxSettings) -> None:
    """Raise Refused for a timeout over the limit."""
    if timeout_ms > settings.max_timeout_ms:
        raise Refused(422, f"timeout_ms exceeds maximum of {settings.max_timeout_ms} ms")


def parse_program(body: schemas.Execute, settings: OnyxSettings) -> NewExecution:
    """Read what to run: a fresh Python, which is killed when its time is over."""
    return NewExecution(
        kind=ExecKind.SCRIPT,
        code=body.code,
        env=_ENV,
        file=ENTRY,
        echo=Echo.STDOUT if body.last_line_interactive else Echo.NONE,
        stdin=None if body.stdin is None else body.stdin.encode(),
        timeout_s=body.timeout_ms / 1000,
        grace_s=0,
        output_bytes=settings.output_bytes,
        output_keep=Keep.HEAD,
    )


def parse_command(body: schemas.Bash, settings: OnyxSettings) -> NewExecution:
    """Read what to run: a fresh bash. Its changes are left for the next program of the session to report."""
    return NewExecution(
        kind=ExecKind.SHELL,
        code=body.cmd,
        env=_ENV,
        timeout_s=body.timeout_ms / 1000,
        grace_s=0,
        output_bytes=settings.output_bytes,
        output_keep=Keep.HEAD,
        scan_changes=False,
    )


def parse_path(path: str, *, reserved: bool = False) -> str:
    """Return a path as it is in the workspace. Raises Refused for one that is not a file's there."""
    if path.startswith("/"):
        raise Refused(422, "File paths must be relative.")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise Refused(422, "File paths must not contain '..'.")
    if not parts:
        raise Refused(422, "File path must not be empty.")
    if reserved and parts == [ENTRY]:
        raise Refused(422, f"File path '{ENTRY}' is reserved for the execution entrypoint.")
    return posixpath.join(*parts)


def render_executed(done: JobResult, limit: int) -> dict[str, Any]:
    """Write how a program ended, and what it left."""
    result = done.execution.result
    assert result is not None
    ran = render_ran(result, limit, notes=list_notes(done))
    return {**ran, "files": render_produced(done)}


def render_ran(result: ExecResult, limit: int, notes: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Write how something ended."""
    stderr = _render_text(result.stderr, result.stderr_bytes, limit)
    for note in explain(result) if notes is None else notes:
        stderr += render_note(stderr, note)
    return {
        "stdout": _render_text(result.stdout, result.stdout_bytes, limit),
        "stderr": stderr,
        **_render_end(result),
    }


def render_produced(done: JobResult) -> list[dict[str, str]]:
    """Write the files that a program left."""
    return [{"path": _printable(path), "kind": "file", "file_id": file.id} for path, file in done.files]


def list_notes(done: JobResult) -> tuple[str, ...]:
    """Write notes for which the contract has no field."""
    assert done.execution.result is not None
    notes = [*explain(done.execution.result)]
    if done.unkept:
        named = ", ".join(map(_printable, done.unkept[:_NAMED])) + (", …" if len(done.unkept) > _NAMED else "")
        notes.append(f"{len(done.unkept)} of the files could not be stored, for want of room: {named}")
    if not done.is_complete:
        notes.append("the workspace has more files than are looked at: some that changed may be missing here")
    return tuple(notes)


def explain(result: ExecResult) -> tuple[str, ...]:
    """Explain why a program was ended, for causes that it cannot see itself."""
    is_killed = result.exit_code is None or result.exit_code < 0
    return (result.hint,) if is_killed and result.cause in _SAID and result.hint else ()


def render_note(before: str, note: str) -> str:
    """Append a sentence of ours to a program's output."""
    return ("" if not before or before.endswith("\n") else "\n") + f"[warren] {note}\n"


def render_uploaded(file: StoredFile) -> dict[str, Any]:
    """Write a stored file."""
    return {"file_id": file.id, "filename": file.name, "size_bytes": file.size}


def render_stored(file: StoredFile) -> dict[str, Any]:
    """Write a stored file in a list."""
    return {**render_uploaded(file), "upload_time": file.created_at}


def render_session(sandbox: Sandbox, session_id: str) -> dict[str, Any]:
    """Write a session."""
    return {"session_id": session_id, "expires_at": sandbox.expires_at}


def render_entries(entries: tuple[Entry, ...], *, is_cut: bool) -> dict[str, Any]:
    """Write the files of a workspace; a field that clients may ignore says whether the list is cut."""
    kinds = {"file", "directory"}
    files = [{"path": _printable(one.path), "kind": one.type} for one in entries if one.type in kinds]
    note = {"note": f"there is more in the workspace than these {len(files)}: list it with a program"}
    return {"files": files, **(note if is_cut else {})}


def render_size(size: int) -> str:
    """Write a limit as clients know it."""
    return f"{size / MIB:g} MB"


class StreamWriter:
    """Writes the events of a program. Each output is cut at a limit, without a mark, and else is whole.

    Output that the service skipped because the client was slow comes with the result, which has all that is answered.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._outputs = {kind: _Output() for kind in ("stdout", "stderr")}

    def write(self, event: Event) -> Iterator[bytes]:
        """Write what the program wrote."""
        output = self._outputs.get(event.kind)
        if output is None:
            return
        output.has_gap = output.has_gap or event.skipped > 0
        if not output.has_gap:
            yield from self._send(event.kind, output, event.data)

    def finish(self, done: JobResult) -> Iterator[bytes]:
        """Write the rest, and how it ended."""
        result = done.execution.result
        assert result is not None
        kept = {"stdout": (result.stdout, result.stdout_bytes), "stderr": (result.stderr, result.stderr_bytes)}
        for kind, (data, size) in kept.items():
            output = self._outputs[kind]
            yield from self._send(kind, output, data[output.sent :], final=size <= self._limit)
        for note in list_notes(done):
            text = render_note(self._outputs["stderr"].last, note)
            self._outputs["stderr"].last = text
            yield encode_event("output", {"stream": "stderr", "data": text})
        yield encode_event("result", {**_render_end(result), "files": render_produced(done)})

    def _send(self, kind: str, output: _Output, data: bytes, *, final: bool = False) -> Iterator[bytes]:
        data = data[: self._limit - output.sent]
        output.sent += len(data)
        text = output.decoder.decode(data, final)
        if text:
            output.last = text
            yield encode_event("output", {"stream": kind, "data": text})


class _Output:
    """How far one output of a program has come."""

    def __init__(self) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.sent = 0
        self.has_gap = False
        self.last = ""


def _render_end(result: ExecResult) -> dict[str, Any]:
    timed_out = result.cause is Cause.TIMEOUT
    return {
        "exit_code": None if timed_out else _render_exit(result.exit_code),
        "timed_out": timed_out,
        "duration_ms": int(result.duration_ms),
    }


def _render_exit(exit_code: int | None) -> int | None:
    """Write an exit code as shells do: a signal is 128 and its number."""
    return 128 - exit_code if exit_code is not None and exit_code < 0 else exit_code


def _render_text(data: bytes, size: int, limit: int) -> str:
    if size <= limit:
        return data.decode("utf-8", "replace")
    return data[: limit - _CUT_BYTES].decode("utf-8", "replace") + CUT


def _printable(path: str) -> str:
    return path.encode("utf-8", "replace").decode()
