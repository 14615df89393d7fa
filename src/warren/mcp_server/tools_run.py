"""Tools that run code: Python that keeps variables, and bash, in the foreground or background."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio
from pydantic import BaseModel, Field

from warren.core.executions.executions import NewExecution
from warren.domain.errors import InvalidRequest, NotFound
from warren.domain.values import ExecKind
from warren.guest.wire.output import HeadTail
from warren.mcp_server.answers import Failed, answer, clip, decode, list_changes, pictures, why
from warren.mcp_server.tool import Arguments, SessionId, Tool

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from warren.domain.values import Display, ExecResult
    from warren.mcp_server.use import CurrentSandbox, Use

_WAIT_S = 60
_GLANCE_S = 0.25
_LONG_COMMAND = 100_000
_TIMEOUT = Field(default=120, ge=1, description="Seconds after which it is stopped.")


class RunPython(Arguments):
    """What run_python takes."""

    code: str = Field(description="Python to run. The value of a last expression is shown, as in a notebook.")
    timeout: int = _TIMEOUT
    session_id: SessionId = None


class RunBash(Arguments):
    """What run_bash takes."""

    command: str = Field(description="A command for bash, in /workspace.")
    timeout: int = _TIMEOUT
    background: bool = Field(
        default=False, description="Return at once with a command_id; check_command shows how it goes. No timeout."
    )
    session_id: SessionId = None


class CheckCommand(Arguments):
    """What check_command takes."""

    command_id: str = Field(max_length=64, description="As run_bash returned it.")
    wait: int = Field(default=0, ge=0, le=_WAIT_S, description="Wait so many seconds for its end.")
    after: int = Field(default=0, ge=0, description="Only output after this; `next` of the last answer.")
    kill: bool = Field(default=False, description="End it.")
    session_id: SessionId = None


class Changed(BaseModel):
    """A file that an execution made, changed or deleted."""

    path: str
    action: str
    size: int


class Ran(BaseModel):
    """How an execution ended."""

    ok: bool
    stdout: str
    stderr: str
    value: str | None = Field(default=None, description="Of the last expression.")
    exit_code: int | None = None
    cause: str = Field(description="exited, error, timeout, interrupted, oom, ...")
    files_changed: list[Changed] = []
    images: int = Field(default=0, description="Pictures that follow in the content.")
    note: str = Field(default="", description="What to know, and what to do next.")
    command_id: str = Field(default="", description="Of a command in the background.")
    running: bool = False
    next: int = Field(default=0, description="For `after` of the next check_command.")


async def run_python(use: Use, asked: RunPython) -> CallToolResult:
    """Run Python in the kernel of the sandbox."""
    timeout_s = min(asked.timeout, use.settings.mcp.max_timeout_s)
    new = NewExecution(code=asked.code, timeout_s=timeout_s, output_bytes=4 * use.settings.mcp.output_chars)

    async def work(place: CurrentSandbox) -> CallToolResult:
        return show(use, await use.run(place.id, new), timeout_s, place.note)

    return await use.within(asked.session_id, work)


async def run_bash(use: Use, asked: RunBash) -> CallToolResult:
    """Run a command, and wait for it or not."""
    timeout_s = min(asked.timeout, use.settings.mcp.max_timeout_s)
    new = build_command(asked.command, timeout_s, 4 * use.settings.mcp.output_chars)

    async def work(place: CurrentSandbox) -> CallToolResult:
        if asked.background:
            return await _start(use, place, asked)
        return show(use, await use.run(place.id, new), timeout_s, place.note)

    return await use.within(asked.session_id, work)


def build_command(command: str, timeout_s: float | None, output_bytes: int) -> NewExecution:
    """Build the execution of a command. Raises InvalidRequest for what no shell takes."""
    if "\0" in command:
        raise InvalidRequest("The command holds a NUL character, which no shell takes: leave it out.")
    if len(command) <= _LONG_COMMAND:
        return NewExecution(kind=ExecKind.SHELL, code=command, timeout_s=timeout_s, output_bytes=output_bytes)
    # WHY: an argument of a program has at most 128 KiB; standard input has no limit.
    return NewExecution(
        kind=ExecKind.ARGV,
        argv=("bash", "-c", 'eval "$(cat)"'),
        stdin=command.encode("utf-8", "replace"),
        timeout_s=timeout_s,
        output_bytes=output_bytes,
    )


async def _start(use: Use, place: CurrentSandbox, asked: RunBash) -> CallToolResult:
    new = build_command(asked.command, None, 4 * use.settings.mcp.output_chars)
    execution = await use.service.executions.start(use.caller, place.id, new)
    note = f"It runs in the background: check_command with command_id {execution.id} shows how it goes."
    data = {"ok": True, "stdout": "", "stderr": "", "cause": "running", "note": note, "running": True}
    return answer(note, _shaped(data | {"command_id": execution.id}))


async def check_command(use: Use, asked: CheckCommand) -> CallToolResult:
    """Check a background command, or end it."""
    sandbox = await use.find(asked.session_id)
    executions = use.service.executions
    try:
        execution = await executions.get(use.caller, sandbox.id, asked.command_id)
    except NotFound:
        raise Failed(
            f"There is no command {asked.command_id} in this sandbox: use the command_id that run_bash returned."
        ) from None
    if asked.kill and execution.result is None:
        await executions.kill(use.caller, sandbox.id, execution.id)
    seen = await _watch(use, sandbox.id, asked)
    if seen.result is not None:
        return show(use, seen.result, 0.0, "" if seen.result.ok else "It ran in the background.", execution.id)
    stdout, stderr = seen.output(use.settings.mcp.output_chars)
    note = f"It still runs. Call check_command again with after={seen.last} for what it writes next."
    data = {"ok": True, "stdout": stdout, "stderr": stderr, "cause": "running", "note": note, "running": True}
    text = "\n".join(part for part in (stdout, stderr and f"[stderr]\n{stderr}", note) if part)
    return answer(text, _shaped(data | {"command_id": execution.id, "next": seen.last}))


class _Seen:
    """The output of an execution so far."""

    def __init__(self, after: int, most: int) -> None:
        self.last = after
        self.result: ExecResult | None = None
        self._kept = {"stdout": HeadTail(4 * most), "stderr": HeadTail(4 * most)}

    def add(self, kind: str, data: bytes) -> None:
        self._kept[kind].add(data)

    def output(self, most: int) -> tuple[str, str]:
        stdout, stderr = (clip(decode(self._kept[kind].kept()), most) for kind in ("stdout", "stderr"))
        return stdout, stderr


async def _watch(use: Use, sandbox_id: str, asked: CheckCommand) -> _Seen:
    seen = _Seen(asked.after, use.settings.mcp.output_chars)
    following = await use.service.executions.events(use.caller, sandbox_id, asked.command_id, asked.after)
    wait_s = max(asked.wait, 10 if asked.kill else 0) or _GLANCE_S
    async with use.ticking(), contextlib.aclosing(following) as events:
        with anyio.move_on_after(wait_s):
            async for event in events:
                seen.last = event.seq
                if event.result is not None:
                    seen.result = event.result
                    break
                if event.kind in {"stdout", "stderr"}:
                    seen.add(event.kind, event.data)
                    use.hear(event.data)
    return seen


def show(use: Use, result: ExecResult, timeout_s: float, note: str = "", command_id: str = "") -> CallToolResult:
    """Build the answer of a finished execution."""
    most = use.settings.mcp.output_chars
    stdout, stderr = clip(decode(result.stdout), most), clip(decode(result.stderr), most)
    value = next((each.data.get("text/plain") for each in result.displays if each.is_result), None)
    shown = [each.data["text/plain"] for each in result.displays if _is_text(each)]
    images = pictures(result)
    changes = list_changes(result.files_changed)
    notes = " ".join(part for part in (note, why(result, timeout_s), *result.notes) if part)
    parts = [
        stdout,
        *(clip(each, most) for each in shown),
        f"[stderr]\n{stderr}" if stderr else "",
        f"[pictures] {len(images)}" if images else "",
        _say_changes(changes),
        notes,
    ]
    text = "\n".join(part.rstrip("\n") for part in parts if part) or "(no output)"
    data = {
        "ok": result.ok,
        "stdout": stdout,
        "stderr": stderr,
        "value": None if value is None else clip(value, most),
        "exit_code": result.exit_code,
        "cause": result.cause.value,
        "files_changed": changes,
        "images": len(images),
        "note": notes,
        "command_id": command_id,
    }
    return answer(text, _shaped(data), images, ok=result.ok)


def _is_text(display: Display) -> bool:
    """Whether a display is written as text: pictures follow as images."""
    return "text/plain" in display.data and not any(kind.startswith("image/") for kind in display.data)


def _say_changes(changes: list[dict[str, Any]]) -> str:
    if not changes:
        return ""
    return "[files] " + ", ".join(f"{each['path']} {each['action']} ({each['size']} bytes)" for each in changes)


def _shaped(data: dict[str, Any]) -> dict[str, Any]:
    return Ran.model_validate(data).model_dump()


TOOLS = (
    Tool(
        name="run_python",
        title="Run Python",
        description=(
            "Run Python code in a sandbox. Variables, imports and functions stay for the next call, as in a notebook; "
            "files are in /workspace and stay too. The last expression's value, what was printed, and plots (as "
            "images) come back, with a list of the files that changed. After a crash or timeout the note says what "
            "became of the variables. Packages that are missing: install_packages."
        ),
        arguments=RunPython,
        answer=Ran,
        run=run_python,
        destroys=True,
    ),
    Tool(
        name="run_bash",
        title="Run a shell command",
        description=(
            "Run a bash command in the sandbox, in /workspace: each call is a new shell, files stay. For servers and "
            "long jobs use background=true, which returns a command_id at once, and follow with check_command. A "
            "server that listens on a port can be asked with curl from another call."
        ),
        arguments=RunBash,
        answer=Ran,
        run=run_bash,
        destroys=True,
    ),
    Tool(
        name="check_command",
        title="Check a background command",
        description=(
            "See what a command that run_bash started in the background has written, and whether it has ended; wait "
            "up to 60 seconds for its end, or end it with kill=true."
        ),
        arguments=CheckCommand,
        answer=Ran,
        run=check_command,
        destroys=True,
    ),
)
