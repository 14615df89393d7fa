"""The three tools of onit-sandbox, with its arguments, defaults and results, and without its defects.

Each answers one text, which is JSON, and the same text as `result`. Keys that the original did not have are there only
where it kept something from its clients: the beginning of a long output, files that were changed, what a command had
written before its time was over, what was refused.
"""

from __future__ import annotations

import json
import shlex
import time
from typing import TYPE_CHECKING, Any, Literal

from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, ConfigDict

from warren.core.executions.executions import NewExecution
from warren.core.packages.install import NewInstall
from warren.core.policy.gpus import list_gpus
from warren.domain.egress import EgressMode
from warren.domain.errors import Error, Forbidden, NotFound
from warren.domain.lifecycle import Status
from warren.domain.values import MIB, Cause, ExecKind
from warren.mcp_server.answers import clip, decode, dump, explain, list_changes
from warren.mcp_server.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.domain.records import Sandbox
    from warren.domain.values import ExecResult
    from warren.mcp_server.use import CurrentSandbox, Use

MAX_TIMEOUT_S = 600
OUTPUT_CHARS = 10_000
INSTALL_CHARS = 5_000
INSTALL_S = 300
_DEPTH = 3
_HEAD_CHARS = 2_000
_KEPT_BYTES = MIB // 4
_PROBE_S = 30.0
_LONG_COMMAND = 100_000
_CLOSED = (
    "Nothing can be installed here: the operator lets these sandboxes reach no package index (mcp.egress). Work with "
    "the packages that sandbox_status lists."
)

_PROBE = """
import glob, importlib.metadata, json, os, platform, stat

def opens(path):
    try:
        device = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return stat.S_ISCHR(os.fstat(device).st_mode)
    finally:
        os.close(device)

own = [path for path in os.environ.get("WARREN_GPUS", "").split(":") if path]
usual = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dri/renderD*", "/dev/dxg")
devices = [path for path in own or [each for one in usual for each in sorted(glob.glob(one))] if opens(path)]
names = {str(each.metadata["Name"]) for each in importlib.metadata.distributions() if each.metadata["Name"]}
print(json.dumps({"python": platform.python_version(), "packages": sorted(names, key=str.lower), "gpus": devices}))
"""
"""Asks the sandbox itself: a device that is there but cannot be opened is of no use to a program."""


class install_packagesArguments(BaseModel):  # noqa: N801 - the schema's title, as the original's clients know it
    """What install_packages takes; the last two are ours."""

    model_config = ConfigDict(extra="ignore")
    packages: str | None = None
    session_id: str | None = None
    ecosystem: Literal["python", "npm"] = "python"
    upgrade: bool = False


class run_codeArguments(BaseModel):  # noqa: N801 - as above
    """What run_code takes."""

    model_config = ConfigDict(extra="ignore")
    command: str | None = None
    timeout: int = 120
    session_id: str | None = None


class sandbox_statusArguments(BaseModel):  # noqa: N801 - as above
    """What sandbox_status takes."""

    model_config = ConfigDict(extra="ignore")
    session_id: str | None = None


class install_packagesOutput(BaseModel):  # noqa: N801 - as above
    """What all three answer."""

    result: str


class run_codeOutput(install_packagesOutput):  # noqa: N801 - as above
    """The same."""


class sandbox_statusOutput(install_packagesOutput):  # noqa: N801 - as above
    """The same."""


def _say(value: Mapping[str, Any]) -> CallToolResult:
    text = dump(value)
    return CallToolResult(content=[TextContent(text=text)], structured_content={"result": text})


async def install_packages(use: Use, asked: install_packagesArguments) -> CallToolResult:
    """Install packages; each word is a name, and none of it reaches a shell."""
    try:
        # As a shell reads it, since models write it for one: quotes around a requirement are not part of it.
        words = shlex.split(asked.packages or "")
    except ValueError as error:
        return _say({"packages": asked.packages, "installed": [], "status": "error", "output": f"{error}."})
    names = tuple(word for word in words if not word.startswith("-"))
    options = {word for word in words if word.startswith("-")} - {"-U", "--upgrade", "--user", "-q", "--quiet"}
    if not words:
        return _say({"status": "error", "error": "No packages specified"})
    answer: dict[str, Any] = {"packages": asked.packages, "installed": []}
    if options or not names:
        why = f"Options of pip are not taken: leave out {', '.join(sorted(options) or words)}."
        return _say(answer | {"status": "error", "output": why})
    upgrade = asked.upgrade or bool({"-U", "--upgrade"} & set(words))
    new = NewInstall(ecosystem=asked.ecosystem, names=names, upgrade=upgrade, timeout_s=INSTALL_S)

    async def work(place: CurrentSandbox) -> CallToolResult:
        done = await use.install(place.id, new)
        output = "\n".join(part.rstrip("\n") for part in (done.output, done.hint or "") if part)
        installed = [name for name, _ in done.packages]
        status = "ok" if done.ok else "error"
        return _say(answer | {"installed": installed, "status": status, "output": output[-INSTALL_CHARS:]})

    try:
        return await use.within(asked.session_id, work)
    except Error as error:
        is_closed = isinstance(error, Forbidden) and use.egress.mode is EgressMode.NONE
        return _say(answer | {"status": "error", "output": _CLOSED if is_closed else explain(error)})


async def run_code(use: Use, asked: run_codeArguments) -> CallToolResult:
    """Run a command in a fresh shell."""
    if not asked.command:
        return _say({"status": "error", "error": "No command specified"})
    timeout_s = max(0, min(asked.timeout, MAX_TIMEOUT_S))
    command = asked.command

    async def work(place: CurrentSandbox) -> CallToolResult:
        refused = use.count_refused(place.id)
        result = await use.run(place.id, _build(command, timeout_s))
        was_refused = use.count_refused(place.id) > refused
        return _say(render_run(command, result, timeout_s, was_refused=was_refused))

    try:
        return await use.within(asked.session_id, work)
    except Error as error:
        failed = {"stdout": "", "stderr": explain(error), "returncode": -1, "status": "error", "files_created": []}
        return _say({"command": command} | failed)


def _build(command: str, timeout_s: int) -> NewExecution:
    is_long = len(command) > _LONG_COMMAND or "\0" in command
    return NewExecution(
        kind=ExecKind.ARGV,
        # WHY: one argument is at most 128 KiB, and holds no NUL; what comes on standard input is not bound by that.
        argv=("sh", "-c", 'eval "$(cat)"') if is_long else ("sh", "-c", command),
        stdin=command.replace("\0", "").encode("utf-8", "replace") if is_long else None,
        timeout_s=timeout_s,
        output_bytes=_KEPT_BYTES,
    )


def render_run(command: str, result: ExecResult, timeout_s: int, *, was_refused: bool = False) -> dict[str, Any]:
    """Write how a command ended."""
    stdout, stderr = decode(result.stdout), decode(result.stderr)
    changes = [each for each in list_changes(result.files_changed) if each["action"] != "deleted"]
    created = sorted(
        each["path"] for each in changes if each["action"] == "created" and each["path"].count("/") < _DEPTH
    )
    answer: dict[str, Any] = {"command": command}
    if result.cause is Cause.TIMEOUT:
        answer |= {"stdout": "", "stderr": f"Command timed out after {timeout_s} seconds", "returncode": -1}
        answer |= {"status": "timeout", "files_created": created}
        partial = {"partial_stdout": stdout[-OUTPUT_CHARS:], "partial_stderr": stderr[-OUTPUT_CHARS:]}
        answer |= {name: text for name, text in partial.items() if text}
    else:
        code = -1 if result.exit_code is None else result.exit_code
        answer |= {"stdout": stdout[-OUTPUT_CHARS:], "stderr": stderr[-OUTPUT_CHARS:]}
        answer |= {"returncode": 128 - code if result.exit_code is not None and code < 0 else code}
        answer |= {"status": "ok" if result.ok else "error", "files_created": created}
        heads = {"stdout_head": stdout, "stderr_head": stderr}
        answer |= {name: text[:_HEAD_CHARS] for name, text in heads.items() if len(text) > OUTPUT_CHARS}
    others = sorted(each["path"] for each in changes if each["path"] not in created)
    answer |= {"files_changed": others} if others else {}
    # Of a command that ended by itself the return code is enough, unless its connections were refused.
    is_hinted = was_refused or result.cause is not Cause.EXITED
    return answer | {"hint": clip(result.hint, _HEAD_CHARS)} if is_hinted and result.hint else answer


async def sandbox_status(use: Use, asked: sandbox_statusArguments) -> CallToolResult:
    """Describe the sandbox, without creating or starting it."""
    try:
        return _say(await _look(use, asked.session_id))
    except Error as error:
        return _say({"status": "error", "error": explain(error)})


async def _look(use: Use, session_id: str | None) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "status": "not_created",
        "python_version": None,
        "installed_packages": [],
        "disk_usage_mb": 0,
        "uptime_seconds": 0,
        "gpu_available": False,
    }
    try:
        sandbox = await use.service.sandboxes.find(use.caller, use.key(session_id))
    except NotFound:
        return answer
    if sandbox.status is not Status.RUNNING:
        return answer | {"status": "stopped"}
    usage = await use.service.sandboxes.usage(use.caller, sandbox.id)
    answer |= {"status": "running", "uptime_seconds": int(time.time() - sandbox.changed_at)}
    answer |= {"disk_usage_mb": round((usage.disk_bytes or 0) / MIB, 1)}
    return answer | await _probe(use, sandbox)


async def _probe(use: Use, sandbox: Sandbox) -> dict[str, Any]:
    new = NewExecution(kind=ExecKind.SCRIPT, code=_PROBE, timeout_s=_PROBE_S, scan_changes=False)
    result = await use.run(sandbox.id, new)
    try:
        found = json.loads(result.stdout)
        version, packages, gpus = str(found["python"]), [str(each) for each in found["packages"]], bool(found["gpus"])
    except (ValueError, TypeError, KeyError, RecursionError):
        # What runs inside may answer anything.
        return {}
    answer = {"python_version": version, "installed_packages": packages, "gpu_available": gpus}
    return answer if gpus else answer | {"gpu_reason": await _explain_gpus(use, sandbox)}


async def _explain_gpus(use: Use, sandbox: Sandbox) -> str:
    """Explain why programs of a sandbox have no GPU."""
    if sandbox.gpus:
        return f"The devices of {', '.join(sandbox.gpus)} cannot be opened in the sandbox."
    devices = await list_gpus(use.service.engine)
    if not devices:
        return "There is no GPU here: programs run on the processors."
    if any(device.usable for device in devices):
        return "This sandbox was made without a GPU (mcp.gpus, or a quota): programs run on the processors."
    return f"The GPU cannot be used, and programs run on the processors: {devices[0].why}."


TOOLS = (
    Tool(
        name="install_packages",
        title="Install Python Packages",
        description=(
            "Install packages into the sandbox, from the package index that its operator configured: names separated "
            "by spaces, with versions if needed, such as `numpy pandas==2.2.3`. They stay with the sandbox's files. "
            "With ecosystem=npm, packages of npm."
        ),
        arguments=install_packagesArguments,
        answer=install_packagesOutput,
        run=install_packages,
        repeats=True,
        goes_out=True,
        is_original=True,
    ),
    Tool(
        name="run_code",
        title="Run Code",
        description=(
            "Run a shell command in the sandbox, in /workspace, and return its output, return code and the files it "
            "made, as JSON. Every call is a new process: for Python whose variables stay, use run_python."
        ),
        arguments=run_codeArguments,
        answer=run_codeOutput,
        run=run_code,
        destroys=True,
        is_original=True,
    ),
    Tool(
        name="sandbox_status",
        title="Sandbox Status",
        description=(
            "Say how the sandbox is, as JSON: its state, Python version, installed packages, disk use, uptime, and "
            "whether a GPU can be used. Makes no sandbox."
        ),
        arguments=sandbox_statusArguments,
        answer=sandbox_statusOutput,
        run=sandbox_status,
        reads_only=True,
        is_original=True,
    ),
)
