"""Installs packages in a sandbox: checks the names, runs the installer without a shell, and reports the result."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from warren.core.executions.request import NewExecution
from warren.core.packages.names import check_names
from warren.domain.egress import PACKAGES_HOST
from warren.domain.errors import Forbidden, Unsupported
from warren.domain.values import MIB, Cause, ExecKind, Keep

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from warren.core.egress.policy_table import EgressPolicies
    from warren.core.executions.executions import Executions
    from warren.core.executions.supervisor import Running
    from warren.core.sandboxes.sandboxes import Sandboxes
    from warren.domain.records import Caller, Execution
    from warren.domain.values import Event, ExecResult, Limits
    from warren.engines.base import Engine

_CODE = (
    "import sys; sys.path.insert(0, '/opt/warren'); from warren.guest.packages import install; "
    "sys.exit(install.main({arguments!r}))"
)
_MARK = b"\x1ewarren-installed "
_NAME = re.compile(r"[A-Za-z0-9@/._~-]{1,214}")
_VERSION = re.compile(r"[A-Za-z0-9.!+_-]{1,100}")
_OUTPUT_BYTES = 256 << 10
_MAX_REPORTED = 1000
_FULL = re.compile(r"No space left on device|os error 28|ENOSPC|Disk quota exceeded")
"""What installers say; when they have cleaned up, there is room again, so the disk does not show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInstall:
    """A request to install packages."""

    ecosystem: str = "python"
    """`python` or `npm`."""
    names: tuple[str, ...]
    upgrade: bool = False
    """Whether installed packages are replaced by the newest version that fits."""
    timeout_s: float | None = None
    """None is the operator's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The result of an installation."""

    ok: bool
    packages: tuple[tuple[str, str], ...]
    """Name and version of the requested packages that are installed, and of all that came with them."""
    output: str
    """Output of the installer."""
    execution_id: str
    hint: str | None = None
    """One sentence with a remedy, if there is one."""
    duration_ms: float = 0.0
    timed_out: bool = False


class Installing:
    """An installation in progress."""

    def __init__(self, running: Running, limits: Limits) -> None:
        self._running = running
        self._limits = limits
        self.execution_id = running.execution.id

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the output of the installer as it arrives, without the report that is meant for the service."""
        held = b""
        async with contextlib.aclosing(self._running.events()) as events:
            async for event in events:
                if event.kind == "stdout":
                    text, held = _before_mark(held + event.data)
                    if text:
                        yield replace(event, data=text)
                elif event.kind == "stderr":
                    yield event

    async def finish(self) -> Installed:
        """Wait for the result."""
        execution = await self._running.wait()
        assert execution.result is not None
        return build_installed(execution.result, self._limits)


@dataclass(eq=False, slots=True)
class Packages:
    """The use case."""

    _sandboxes: Sandboxes
    _executions: Executions
    _policies: EgressPolicies
    _engine: Engine
    _timeout_s: float = 300.0

    async def install(
        self,
        caller: Caller,
        sandbox_id: str,
        new: NewInstall,
        on_event: Callable[[Event], Awaitable[None]] | None = None,
        *,
        is_kept: bool = True,
    ) -> Installed:
        """Install packages, and pass the installer's output to `on_event`.

        An installation that is not kept has audit entries only, and reports no output meanwhile. A failure of the
        installer is a result. Raises InvalidRequest for invalid names, Forbidden where the sandbox may not reach the
        package index, and whatever an execution raises.
        """
        if not is_kept:
            async with self._prepared(caller, sandbox_id, new) as (request, limits, noted):
                execution = await self._executions.run(caller, sandbox_id, request, is_kept=False)
                _note(noted, execution)
            assert execution.result is not None
            return build_installed(execution.result, limits)
        async with self.begin(caller, sandbox_id, new) as installing:
            async with contextlib.aclosing(installing.events()) as events:
                async for event in events:
                    if on_event is not None:
                        await on_event(event)
            return await installing.finish()

    @contextlib.asynccontextmanager
    async def begin(self, caller: Caller, sandbox_id: str, new: NewInstall) -> AsyncIterator[Installing]:
        """Start an installation; leaving the body ends it. Raises as `install`."""
        async with (
            self._prepared(caller, sandbox_id, new) as (request, limits, noted),
            await self._executions.begin(caller, sandbox_id, request) as running,
        ):
            yield Installing(running, limits)
            _note(noted, running.execution)

    @contextlib.asynccontextmanager
    async def _prepared(
        self, caller: Caller, sandbox_id: str, new: NewInstall
    ) -> AsyncIterator[tuple[NewExecution, Limits, dict[str, Any]]]:
        """Check the request, and audit its outcome."""
        names = check_names(new.ecosystem, new.names)
        asked = {"ecosystem": new.ecosystem, "packages": list(names)}
        async with self._sandboxes.audited(caller, "packages.install", sandbox_id=sandbox_id, **asked) as noted:
            sandbox = await self._sandboxes.get(caller, sandbox_id)
            self._check_reach(sandbox_id)
            yield _build_execution(new, names, self._timeout_s), sandbox.limits, noted

    def _check_reach(self, sandbox_id: str) -> None:
        if not self._engine.has_own_network:
            raise Unsupported(
                f"the {self._engine.name} engine has no package index: its programs use this host's network, so run "
                "pip there yourself"
            )
        verdict = self._policies.decide(sandbox_id, PACKAGES_HOST, 80, method="GET")
        if not verdict.allowed:
            raise Forbidden(
                "this sandbox may not reach the package index: set its egress to packages, with "
                '{"egress": "packages"} when it is made or later, or ask the operator to raise tenant.egress'
            )


def _note(noted: dict[str, Any], execution: Execution) -> None:
    noted["execution_id"] = execution.id
    if execution.result is not None:
        installed = build_installed(execution.result)
        noted["installed"] = [f"{name}=={version}" for name, version in installed.packages[:100]]
        noted["exit_code"] = execution.result.exit_code


def _build_execution(new: NewInstall, names: tuple[str, ...], timeout_s: float) -> NewExecution:
    return NewExecution(
        # Forked from a Python that has started; a command of its own would have to start one.
        kind=ExecKind.SCRIPT,
        code=_CODE.format(arguments=[new.ecosystem, "1" if new.upgrade else "0", *names]),
        timeout_s=timeout_s if new.timeout_s is None else new.timeout_s,
        output_bytes=_OUTPUT_BYTES,
        output_keep=Keep.ENDS,
        kill_leftovers=True,
        # npm writes beside the files of programs: unless they are seen now, the next command seems to have made them.
        scan_changes=new.ecosystem == "npm",
    )


def build_installed(result: ExecResult, limits: Limits | None = None) -> Installed:
    """Build the result. The report of the program is untrusted and parsed as such."""
    said, report = _split_mark(result.stdout)
    output = "\n".join(filter(None, (_text(said), _text(result.stderr))))
    timed_out = result.cause is Cause.TIMEOUT
    packages, replaced = _read_report(report)
    hint = result.hint
    if timed_out:
        hint = "The installation was ended because it took too long: install fewer packages, or allow it more time."
    elif limits is not None and not result.ok and (result.cause is Cause.DISK or _FULL.search(output)):
        hint = (
            f"There is no room for these packages: the disk of this sandbox has {limits.disk_bytes / MIB:.0f} MiB. "
            "Ask for a sandbox with more disk, or its operator for a larger limits.disk_bytes."
        )
    elif replaced and hint is None:
        names = ", ".join(replaced[:5])
        hint = f"There was another version of {names}: a kernel that has imported it keeps that until it is restarted."
    return Installed(
        ok=result.ok,
        packages=packages,
        output=output,
        execution_id=result.id,
        hint=hint,
        duration_ms=result.duration_ms,
        timed_out=timed_out,
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()


def _before_mark(data: bytes) -> tuple[bytes, bytes]:
    """Split output into what may be shown, and a tail that may be the beginning of the report."""
    at = data.find(_MARK[:1])
    return (data, b"") if at < 0 else (data[:at], data[at:])


def _split_mark(data: bytes) -> tuple[bytes, bytes]:
    said, mark, rest = data.rpartition(_MARK)
    return (said, rest.partition(b"\n")[0]) if mark else (data, b"")


def _read_report(report: bytes) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    try:
        said: Any = orjson.loads(report) if report else {}
    except orjson.JSONDecodeError:
        said = {}
    found: list[tuple[str, str]] = []
    replaced: list[str] = []
    match said:
        case {"packages": [*entries], "replaced": [*names]}:
            for entry in entries[:_MAX_REPORTED]:
                match entry:
                    case [str(name), str(version)] if _NAME.fullmatch(name) and _VERSION.fullmatch(version):
                        found.append((name, version))
            known = {name for name, _ in found}
            replaced = [name for name in names if isinstance(name, str) and name in known]
    return tuple(found), replaced
