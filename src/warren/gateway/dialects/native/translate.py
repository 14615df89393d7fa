"""From the domain to the native API. Pure: values in, values out; `translate_requests.py` is the other way."""

from __future__ import annotations

import base64
import dataclasses
import math
from typing import TYPE_CHECKING, Any

from warren.core.executions.records import cut, cut_text
from warren.core.files.files import WORKSPACE
from warren.domain.egress import EgressMode
from warren.domain.values import MIB, Cause
from warren.gateway.api.large_responses import measure_displays
from warren.gateway.dialects.native.answers import render_time
from warren.gateway.dialects.native.schemas_answers import (
    AuditShown,
    BuildShown,
    EgressRuleShown,
    FileChangeShown,
    ImageShown,
    KernelShown,
    OutputFileShown,
    ResultShown,
    SandboxShown,
    StartedShown,
)
from warren.gateway.dialects.native.schemas_egress import GrantShown, SecretShown

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.core.agent.values import Kernel
    from warren.core.executions.oneshot import OneShotResult
    from warren.core.image_builds import Build
    from warren.core.images.catalog import BuildStep, ImageStatus
    from warren.core.images.spec import ImageSpec
    from warren.domain.egress import Brokered, Grant
    from warren.domain.records import AuditRow, Execution, Page, Sandbox
    from warren.domain.values import Display, ExecResult

LISTED_BYTES = 4096
"""Of the code and of each output, in a list."""
LISTED_CHANGES = 100


def render_page(page: Page[Any], render: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Write a part of a list."""
    return {
        "items": [render(item) for item in page.items],
        "total": page.total,
        "offset": page.offset,
        "limit": page.limit,
    }


def render_sandbox(sandbox: Sandbox) -> dict[str, Any]:
    """Write a sandbox, without its environment."""
    limits = sandbox.limits
    return SandboxShown.render(
        sandbox,
        workspace_path=WORKSPACE,
        memory_mb=limits.memory_bytes // MIB,
        cpu=limits.cpus,
        pids=limits.pids,
        disk_mb=limits.disk_bytes // MIB,
        checkpoint_mb=limits.checkpoint_bytes // MIB,
        checkpoints=limits.checkpoints,
        network_enabled=sandbox.egress.mode in {EgressMode.PACKAGES, EgressMode.OPEN} or bool(sandbox.egress.rules),
        idle_timeout_seconds=sandbox.idle_timeout_s or None,
        max_lifetime_seconds=sandbox.max_lifetime_s or None,
        metadata=dict(sandbox.metadata),
        last_activity_at=render_time(sandbox.active_at),
        command_count=sandbox.executions,
    )


def render_grant(grant: Grant) -> dict[str, Any]:
    """Write what a sandbox was granted for a while."""
    rule = EgressRuleShown.render(grant.rule)
    return GrantShown.render(grant, **rule, expires_at=render_time(grant.rule.until or 0.0))


def render_secret(secret: Brokered) -> dict[str, Any]:
    """Write a secret, without its value."""
    return SecretShown.render(secret)


def render_execution(execution: Execution, encoding: str = "utf-8") -> dict[str, Any]:
    """Write an execution and how it ended."""
    result = execution.result
    status = "running" if result is None else "finished"
    return {
        **StartedShown.render(execution, execution_id=execution.id, status=status),
        **(_NO_RESULT | {"encoding": encoding} if result is None else _render_result(result, encoding)),
    }


def render_recorded(execution: Execution, encoding: str = "utf-8") -> dict[str, Any]:
    """Write an execution as it was recorded, with its code."""
    return {**render_execution(execution, encoding), "code": execution.code, "request_id": execution.request_id}


def render_listed(execution: Execution) -> dict[str, Any]:
    """Write an execution as one of a list: of long fields, beginning and end."""
    result = execution.result
    if result is not None:
        stdout, stderr = cut(result.stdout, LISTED_BYTES), cut(result.stderr, LISTED_BYTES)
        displays = result.displays if measure_displays(result.displays) <= LISTED_BYTES else ()
        changes = result.files_changed[:LISTED_CHANGES]
        result = dataclasses.replace(
            result,
            stdout=stdout,
            stderr=stderr,
            displays=displays,
            error=result.error and {name: cut_text(text, LISTED_BYTES) for name, text in result.error.items()},
            files_changed=changes,
            files_changed_complete=result.files_changed_complete and changes == result.files_changed,
            truncated=result.truncated or (stdout, stderr, displays) != (result.stdout, result.stderr, result.displays),
        )
    return render_recorded(dataclasses.replace(execution, result=result, code=cut_text(execution.code, LISTED_BYTES)))


def _render_result(result: ExecResult, encoding: str) -> dict[str, Any]:
    """Write how an execution ended."""
    return ResultShown.render(
        result,
        timed_out=result.cause is Cause.TIMEOUT,
        stdout=render_bytes(result.stdout, encoding),
        stderr=render_bytes(result.stderr, encoding),
        encoding=encoding,
        displays=[render_display(display) for display in result.displays],
        error=None if result.error is None else dict(result.error),
        files_changed=[FileChangeShown.render(change, size_bytes=change.size) for change in result.files_changed],
        # Whole, as the clients of the Sandboxes page know it.
        duration_ms=math.ceil(result.duration_ms),
    )


_NO_RESULT: dict[str, Any] = {
    **dict.fromkeys(
        ("exit_code", "cause", "state", "hint", "limit", "peak", "error", "why_unprotected"),
    ),
    **dict.fromkeys(("timed_out", "truncated", "files_changed_complete", "protected"), False),
    **dict.fromkeys(("stdout_bytes", "stderr_bytes", "cells_back", "duration_ms", "cpu_ms"), 0),
    **dict.fromkeys(("stdout", "stderr"), ""),
    **dict.fromkeys(("displays", "files_changed", "notes"), ()),
}


def render_bytes(data: bytes, encoding: str) -> str:
    """Write output as text, with U+FFFD for bytes that are not UTF-8, or as base64."""
    return base64.b64encode(data).decode() if encoding == "base64" else data.decode("utf-8", "replace")


def render_display(display: Display) -> dict[str, Any]:
    """Write something that a cell showed."""
    return {"data": dict(display.data), "metadata": dict(display.metadata), "is_result": display.is_result}


def render_kernel(kernel: Kernel) -> dict[str, Any]:
    """Write what is known of a kernel."""
    return KernelShown.render(kernel, state="busy" if kernel.busy else "idle")


def render_audit(row: AuditRow) -> dict[str, Any]:
    """Write a row of the audit record."""
    details = dict(row.entry.details)
    return AuditShown.render(row.entry, details=details, seq=row.seq, previous=row.previous, hash=row.hash)


def render_image(spec: ImageSpec, status: ImageStatus, default: str, build: Build | None) -> dict[str, Any]:
    """Write an image, whether it is built, and how far its last build is."""
    state = "built" if status.built else "stale" if status.stale else "not_built"
    return ImageShown.render(
        spec,
        digest=status.digest,
        state="building" if build is not None and build.finished_at is None else state,
        is_default=spec.name == default,
        size_bytes=status.size_bytes,
        built_at=None if status.built_at is None else render_time(status.built_at),
        stale=status.stale,
        build=None if build is None else _render_build(build),
    )


def _render_build(build: Build) -> dict[str, Any]:
    error = None if build.error is None else str(build.error)
    return BuildShown.render(build, **render_step(build.step), error=error)


def render_step(step: BuildStep) -> dict[str, Any]:
    """Write one step of a build."""
    return {"phase": step.phase, "detail": step.detail, "done": step.done, "total": step.total}


def render_one_shot(result: OneShotResult, encoding: str) -> dict[str, Any]:
    """Write how a run in a sandbox of its own ended."""
    files = [
        OutputFileShown.render(file, size_bytes=len(file.content), base64=base64.b64encode(file.content).decode())
        for file in result.files
    ]
    return {**render_execution(result.execution, encoding), "files": files, "files_complete": result.files_complete}
