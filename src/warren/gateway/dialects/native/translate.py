"""From our words to those of the native API. Pure: values in, values out; `translate_requests.py` is the other way."""

from __future__ import annotations

import base64
import dataclasses
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from warren.core.executions.records import cut, cut_text
from warren.core.files.files import WORKSPACE
from warren.domain.values import MIB, Cause
from warren.gateway.api.large_responses import measure_displays
from warren.gateway.dialects.native.translate_egress import has_network, render_egress, render_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Literal

    from warren.core.agent.values import Kernel
    from warren.core.executions.oneshot import OneShotResult
    from warren.core.image_builds import Build
    from warren.core.images.catalog import BuildStep, ImageStatus
    from warren.core.images.spec import ImageSpec
    from warren.domain.egress import Brokered, Grant
    from warren.domain.records import AuditRow, Execution, Page, Sandbox
    from warren.domain.values import Display, ExecResult, Usage
    from warren.gateway.dialects.native.schemas_answers import (
        ChangeAction,
        DisplayShown,
        EncodingName,
        ErrorShown,
        ExecutionShown,
        OutputFileShown,
        RecordedExecution,
        ResultShown,
        RunShown,
    )

LISTED_BYTES = 4096
"""Of the code and of each output, in a list."""
LISTED_CHANGES = 100


def render_time(seconds: float) -> str:
    """Write a time as ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def render_optional_time(seconds: float | None) -> str | None:
    """Write a time as ISO 8601, or nothing."""
    return None if seconds is None else render_time(seconds)


def render_page(page: Page[Any], render: Callable[[Any], Mapping[str, Any]]) -> dict[str, Any]:
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
    return {
        "id": sandbox.id,
        "status": sandbox.status,
        "image": sandbox.image,
        "image_digest": sandbox.image_digest,
        "engine": sandbox.engine,
        "owner": {"tenant": sandbox.owner.tenant, "subject": sandbox.owner.subject},
        "workspace_path": WORKSPACE,
        "storage": sandbox.storage,
        "memory_mb": limits.memory_bytes // MIB,
        "cpu": limits.cpus,
        "pids": limits.pids,
        "disk_mb": limits.disk_bytes // MIB,
        "checkpoint_mb": limits.checkpoint_bytes // MIB,
        "checkpoints": limits.checkpoints,
        "egress": render_egress(sandbox.egress),
        "network_enabled": has_network(sandbox.egress),
        "gpus": list(sandbox.gpus),
        "idle_timeout_seconds": sandbox.idle_timeout_s or None,
        "max_lifetime_seconds": sandbox.max_lifetime_s or None,
        "session_key": sandbox.session_key,
        "metadata": dict(sandbox.metadata),
        "created_at": render_time(sandbox.created_at),
        "last_activity_at": render_time(sandbox.active_at),
        "changed_at": render_time(sandbox.changed_at),
        "expires_at": render_optional_time(sandbox.expires_at),
        "reason": sandbox.reason,
        "command_count": sandbox.executions,
    }


def render_grant(grant: Grant) -> dict[str, Any]:
    """Write what a sandbox was granted for a while."""
    return {
        "id": grant.id,
        **render_rule(grant.rule),
        "created_at": render_time(grant.created_at),
        "expires_at": render_time(grant.rule.until or 0.0),
    }


def render_secret(secret: Brokered) -> dict[str, Any]:
    """Write a secret, without its value."""
    return {
        "name": secret.name,
        "placeholder": secret.placeholder,
        "hosts": list(secret.hosts),
        "created_at": render_time(secret.created_at),
    }


def render_usage(usage: Usage) -> dict[str, Any]:
    """Write what a sandbox uses."""
    return dataclasses.asdict(usage)


def render_execution(execution: Execution, encoding: EncodingName = "utf-8") -> ExecutionShown:
    """Write an execution and how it ended."""
    result = execution.result
    return {
        "execution_id": execution.id,
        "sandbox_id": execution.sandbox_id,
        "status": "running" if result is None else "finished",
        "kind": execution.kind,
        "kernel": execution.kernel,
        "background": execution.background,
        "started_at": render_time(execution.started_at),
        "finished_at": render_optional_time(execution.finished_at),
        **(_render_no_result(encoding) if result is None else render_result(result, encoding)),
    }


def render_recorded(execution: Execution, encoding: EncodingName = "utf-8") -> RecordedExecution:
    """Write an execution as it was recorded, with its code."""
    return {**render_execution(execution, encoding), "code": execution.code, "request_id": execution.request_id}


def render_listed(execution: Execution) -> RecordedExecution:
    """Write an execution as one of many: of what is long, its beginning and its end."""
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


def render_result(result: ExecResult, encoding: EncodingName) -> ResultShown:
    """Write how an execution ended."""
    return {
        "exit_code": result.exit_code,
        "cause": result.cause,
        "state": result.state,
        "timed_out": result.cause is Cause.TIMEOUT,
        "hint": result.hint,
        "limit": result.limit,
        "peak": result.peak,
        "stdout": render_bytes(result.stdout, encoding),
        "stderr": render_bytes(result.stderr, encoding),
        "encoding": encoding,
        "stdout_bytes": result.stdout_bytes,
        "stderr_bytes": result.stderr_bytes,
        "truncated": result.truncated,
        "displays": [render_display(display) for display in result.displays],
        "error": None if result.error is None else cast("ErrorShown", dict(result.error)),
        "files_changed": [
            {"path": change.path, "action": cast("ChangeAction", change.action), "size_bytes": change.size}
            for change in result.files_changed
        ],
        "files_changed_complete": result.files_changed_complete,
        # Whole, as the clients of the Sandboxes page know it.
        "duration_ms": math.ceil(result.duration_ms),
        "cpu_ms": result.cpu_ms,
        "cells_back": result.cells_back,
        "protected": result.protected,
        "why_unprotected": result.why_unprotected,
        "notes": list(result.notes),
    }


def _render_no_result(encoding: EncodingName) -> ResultShown:
    """Write the result of an execution that still runs: null or empty."""
    return {
        "exit_code": None,
        "cause": None,
        "state": None,
        "timed_out": False,
        "hint": None,
        "limit": None,
        "peak": None,
        "stdout": "",
        "stderr": "",
        "encoding": encoding,
        "stdout_bytes": 0,
        "stderr_bytes": 0,
        "truncated": False,
        "displays": [],
        "error": None,
        "files_changed": [],
        "files_changed_complete": False,
        "duration_ms": 0,
        "cpu_ms": 0,
        "cells_back": 0,
        "protected": False,
        "why_unprotected": None,
        "notes": [],
    }


def render_bytes(data: bytes, encoding: str) -> str:
    """Write output as text, with U+FFFD for what is none, or as base64."""
    return base64.b64encode(data).decode() if encoding == "base64" else data.decode("utf-8", "replace")


def render_display(display: Display) -> DisplayShown:
    """Write something that a cell showed."""
    return {"data": dict(display.data), "metadata": dict(display.metadata), "is_result": display.is_result}


def render_kernel(kernel: Kernel) -> dict[str, Any]:
    """Write what is known of a kernel."""
    return {
        "name": kernel.name,
        "state": "busy" if kernel.busy else "idle",
        "executed": kernel.executed,
        "checkpoints": kernel.checkpoints,
        "protected": kernel.protected,
        "private_bytes": kernel.private_bytes,
    }


def render_audit(row: AuditRow) -> dict[str, Any]:
    """Write a row of the audit record."""
    values = {name: getattr(row.entry, name) for name in row.entry.__slots__}
    return {
        **values,
        "at": render_time(row.entry.at),
        "details": dict(row.entry.details),
        "seq": row.seq,
        "previous": row.previous,
        "hash": row.hash,
    }


def render_image(spec: ImageSpec, status: ImageStatus, default: str, build: Build | None) -> dict[str, Any]:
    """Write an image, whether it is built, and how far its last build is."""
    state = "built" if status.built else "stale" if status.stale else "not_built"
    return {
        "name": spec.name,
        "description": spec.description,
        "aliases": list(spec.aliases),
        "packages": list(spec.packages),
        "digest": status.digest,
        "state": "building" if build is not None and build.finished_at is None else state,
        "is_default": spec.name == default,
        "size_bytes": status.size_bytes,
        "built_at": render_optional_time(status.built_at),
        "preload": list(spec.preload),
        "stale": list(status.stale),
        "build": None if build is None else render_build(build),
    }


def render_build(build: Build) -> dict[str, Any]:
    """Write how far a build is."""
    return {
        **render_step(build.step),
        "started_at": render_time(build.started_at),
        "finished_at": render_optional_time(build.finished_at),
        "error": None if build.error is None else str(build.error),
    }


def render_step(step: BuildStep) -> dict[str, Any]:
    """Write one step of a build."""
    return {"phase": step.phase, "detail": step.detail, "done": step.done, "total": step.total}


def render_one_shot(result: OneShotResult, encoding: EncodingName) -> RunShown:
    """Write how a run in a sandbox of its own ended."""
    files: list[OutputFileShown] = [
        {
            "path": file.path,
            "action": cast("Literal['created', 'modified']", file.action),
            "size_bytes": len(file.content),
            "base64": base64.b64encode(file.content).decode(),
        }
        for file in result.files
    ]
    return {**render_execution(result.execution, encoding), "files": files, "files_complete": result.files_complete}
