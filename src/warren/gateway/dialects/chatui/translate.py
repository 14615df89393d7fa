"""Between ChatUI's schemas and the domain. Pure."""

from __future__ import annotations

import base64
import binascii
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.core.executions.executions import NewExecution
from warren.domain.values import Cause, Echo, ExecKind, Keep
from warren.gateway.dialects.details import Refused, describe, too_large
from warren.gateway.dialects.named_files import guess_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.domain.records import Sandbox
    from warren.domain.values import ExecResult
    from warren.gateway.dialects.chatui.schemas import Execute
    from warren.settings.groups_apis import ChatuiSettings

RELEASE = "1.1.0"
"""The release of the original whose contract this is: what clients see as its version."""
OUTPUT = "/tmp/output"
SCRATCH = (OUTPUT, "/tmp/misc")
_SOURCE = "<user_code>"
_CHARACTER_BYTES = 4
_TRACEBACK = b"Traceback (most recent call last):\n"
_NAMES = {"python": "Python process", "bash": "Bash script"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How a program failed."""

    error: str
    error_type: str
    timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A file of `/tmp/output`, or why there is none."""

    name: str
    size: int
    content: bytes | None = None
    error: str | None = None


def render_container(sandbox: Sandbox, container_id: str, now: float, settings: ChatuiSettings) -> dict[str, Any]:
    """Build a container as clients see it."""
    return {
        "container_id": container_id,
        "status": "active",
        "uptime_seconds": round(max(0.0, now - sandbox.created_at), 3),
        "last_activity": sandbox.active_at,
        "expires_at": sandbox.expires_at,
        "execution_count": sandbox.executions,
        "max_executions": settings.executions_per_container,
        "docker_daemon_id": None,
    }


def find_faults(body: Execute, settings: ChatuiSettings) -> list[dict[str, Any]]:
    """List violations of the operator's limits, in the shape of field errors."""
    faults = []
    if body.timeout is not None and body.timeout > settings.max_timeout_s:
        faults.append(too_large("timeout", body.timeout, settings.max_timeout_s))
    packages, files = body.pip_packages or [], body.files or []
    if packages and not settings.allow_pip:
        faults.append(_value_error("pip_packages", "Pip installations are disabled", packages))
    elif len(packages) > settings.pip_packages:
        faults.append(_value_error("pip_packages", f"Too many pip packages (max {settings.pip_packages})", packages))
    if len(files) > settings.input_files:
        faults.append(_value_error("files", f"Too many input files (max {settings.input_files})", len(files)))
    return faults


def _value_error(field: str, why: str, value: object) -> dict[str, Any]:
    return describe("value_error", ["body", field], f"Value error, {why}", value) | {"ctx": {"error": why}}


def parse_files(body: Execute, settings: ChatuiSettings) -> dict[str, bytes]:
    """Decode the files of a program. Raises Refused."""
    found: dict[str, bytes] = {}
    size = 0
    for each in body.files or ():
        if each.name in found:
            raise Refused(400, f"Duplicate input file name '{each.name}' is not allowed")
        try:
            content = base64.b64decode(each.content, validate=True)
        except (binascii.Error, ValueError):
            raise Refused(400, f"File '{each.name}' content is not valid base64") from None
        most = settings.input_file_bytes
        if len(content) > most:
            raise Refused(400, f"File '{each.name}' too large ({len(content)} bytes, max {most})")
        size += len(content)
        if size > settings.input_bytes:
            raise Refused(400, "Total size of uploaded files exceeds limit")
        found[each.name] = content
    return found


def parse_program(body: Execute, timeout_s: float, settings: ChatuiSettings) -> NewExecution:
    """Build the execution: a process of its own, in the environment that the original promises."""
    is_python = body.language == "python"
    return NewExecution(
        kind=ExecKind.SCRIPT if is_python else ExecKind.SHELL,
        code=body.code,
        timeout_s=timeout_s,
        echo=Echo.NONE,
        output_bytes=(settings.output_chars + 1) * _CHARACTER_BYTES,
        output_keep=Keep.HEAD,
        kill_leftovers=True,
        scan_changes=False,
        label=_SOURCE if is_python else "",
        scratch=SCRATCH,
        collect=OUTPUT,
        figures=OUTPUT if is_python else "",
    )


def explain_install(said: str) -> str:
    """Write the error of an installation, which goes before the program's own errors."""
    return f"--- PIP INSTALL ERROR ---\n{said.strip()}\n------------------------\n"


def find_failure(
    result: ExecResult, language: str, timeout_s: float, *, stderr: str, is_removed: bool
) -> Failure | None:
    """Return how a program failed, by its cause and not by its output; None when it did not."""
    what = _NAMES[language]
    if result.cause is Cause.TIMEOUT:
        rest = "Container removed." if is_removed else "The container is kept, with its files."
        error = f"Execution timed out after {timeout_s:g} seconds. {rest}"
        return Failure(error=error, error_type="TimeoutError", timed_out=True)
    if result.cause is Cause.LOST:
        return Failure(error="Execution failed due to an infrastructure error", error_type="GatewayError")
    code = result.exit_code
    if code == 0 and result.cause is Cause.EXITED:
        return None
    kind = (result.error or {}).get("name") or "PythonExitError"
    is_raised = language == "python" and code == -signal.SIGINT and kind == "KeyboardInterrupt"
    if (code is None or code < 0) and not is_raised:
        name = _name_signal(0 if code is None else -code)
        why = f" {result.hint}" if result.hint and result.cause is not Cause.KILLED else ""
        return Failure(error=f"{what} terminated by {name}{'.' if why else ''}{why}", error_type="ProcessSignalError")
    if language == "bash":
        return Failure(error=f"{what} exited with code {code}", error_type="BashExitError")
    return Failure(error=stderr.strip() or f"{what} exited with code {code}", error_type=kind)


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def read_stderr(result: ExecResult, most: int) -> str:
    """Decode stderr; after a timeout without the traceback of our own interrupt."""
    data, chars = result.stderr, result.stderr_chars
    is_ours = result.cause is Cause.TIMEOUT and (result.error or {}).get("name") == "KeyboardInterrupt"
    start = data.rfind(_TRACEBACK) if is_ours and data.endswith(b"KeyboardInterrupt\n") else -1
    if start >= 0:
        data, chars = data[:start], chars - len(data[start:].decode("utf-8", "replace"))
    return read_output(*_add_heading(data, chars, result), most)


def _add_heading(data: bytes, chars: int, result: ExecResult) -> tuple[bytes, int]:
    """Put the heading over the traceback of a program that does not compile: the original has one there too."""
    said = (result.error or {}).get("traceback", "").encode("utf-8", "replace")
    if not said.startswith(f'  File "{_SOURCE}"'.encode()) or not data.endswith(said):
        return data, chars
    return data.removesuffix(said) + _TRACEBACK + said, chars + len(_TRACEBACK)


def read_output(data: bytes, total_chars: int, most: int) -> str:
    """Decode the kept output of a program, and cut it where clients expect it to be cut."""
    text = data.decode("utf-8", "replace")
    # Bytes that are no text may be more characters here than the sandbox counted.
    total = max(total_chars, len(text))
    if total <= most:
        return text
    return f"{text[:most]}\n\n... [OUTPUT TRUNCATED — {total} chars total, showing first {most}]"


def render_files(files: tuple[Output, ...]) -> list[dict[str, Any]]:
    """Build the files of an answer."""
    return [
        {
            "name": each.name.encode("utf-8", "replace").decode(),
            "content": None if each.content is None else base64.b64encode(each.content).decode(),
            "mime_type": guess_type(each.name),
            "size": each.size,
            "error": each.error,
        }
        for each in files
    ]


def render_id(execution_id: str) -> str:
    """Build an id of the length that clients expect, by which the record of an execution can be found."""
    digits = execution_id.partition("_")[2]
    return f"{digits[:8]}-{digits[8:11]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """The outcome of a program, before it is JSON."""

    execution_id: str
    failure: Failure | None = None
    stdout: str = ""
    stderr: str = ""
    files: tuple[Output, ...] = ()
    seconds: float = 0.0
    install_s: float | None = None

    def render(self) -> dict[str, Any]:
        """Build the answer to a program."""
        failure, install_s = self.failure, self.install_s
        return {
            "execution_id": render_id(self.execution_id),
            "stdout": self.stdout,
            "stderr": self.stderr,
            "error": None if failure is None else failure.error,
            "error_type": None if failure is None else failure.error_type,
            "files": render_files(self.files),
            "execution_time": round(self.seconds, 3),
            "install_time": None if install_s is None else round(install_s, 3),
            "timed_out": failure is not None and failure.timed_out,
        }


def render_version(rendering: str, *, with_pip: bool, with_rendering: bool) -> dict[str, Any]:
    """Build the answer of `/version`."""
    versions: Mapping[str, list[str]] = {"execution": ["v1"], "rendering": ["v1", "v2"]}
    about: dict[str, Any] = {"version": RELEASE, "tag": f"v{RELEASE}", "api_contract_version": 1, "beta": False}
    for what, known in versions.items():
        about |= {f"active_{what}_version": "v1", f"default_{what}_version": "v1"}
        about |= {f"supported_{what}_versions": known, f"available_{what}_versions": known}
    about["active_rendering_version"] = rendering
    about["features"] = {
        "gateway_version_headers": True,
        "persistent_sessions": True,
        "input_files": True,
        "pip_packages": with_pip,
        "slide_rendering": with_rendering,
        "slide_renderer_version_headers": with_rendering,
    }
    return about
