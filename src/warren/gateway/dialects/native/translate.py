"""Between the words of the native API and ours. Pure: values in, values out."""

from __future__ import annotations

import base64
import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from warren.core.execution_request import NewExecution
from warren.core.oneshot import OneShot
from warren.core.sandboxes import NewSandbox, SandboxChanges
from warren.domain import MIB, Cause, ExecKind
from warren.errors import InvalidRequest
from warren.records import AuditQuery, SandboxQuery

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.core.image_spec import ImageSpec
    from warren.core.images import ImageStatus
    from warren.core.link_values import Kernel
    from warren.core.oneshot import OneShotResult
    from warren.domain import Display, ExecResult, Limits, Usage
    from warren.gateway.dialects.native import schemas
    from warren.records import AuditRow, Execution, Owner, Page, Sandbox

WORKSPACE = "/workspace"
_LIMITS = (
    ("memory_mb", "memory_bytes", MIB),
    ("disk_mb", "disk_bytes", MIB),
    ("checkpoint_mb", "checkpoint_bytes", MIB),
    ("cpu", "cpus", 1),
    ("pids", "pids", 1),
    ("checkpoints", "checkpoints", 1),
)


def parse_limits(body: schemas.LimitFields | schemas.Run, base: Limits) -> Limits | None:
    """Build the limits that were asked for over those that hold otherwise; None when nothing was."""
    chosen = {name: value * unit for field, name, unit in _LIMITS if (value := getattr(body, field, None)) is not None}
    return dataclasses.replace(base, **chosen) if chosen else None


def parse_new_sandbox(body: schemas.CreateSandbox, base: Limits, idempotency_key: str | None) -> NewSandbox:
    """Build what the core is asked for."""
    return NewSandbox(
        image=body.image,
        limits=parse_limits(body, base),
        storage=body.storage,
        env=body.env,
        metadata=body.metadata,
        session_key=body.session_key,
        idle_timeout_s=body.idle_timeout_seconds,
        max_lifetime_s=body.max_lifetime_seconds,
        idempotency_key=idempotency_key,
    )


def parse_changes(body: schemas.UpdateSandbox, base: Limits) -> SandboxChanges:
    """Build what the core is asked to change."""
    return SandboxChanges(
        metadata=body.metadata,
        idle_timeout_s=body.idle_timeout_seconds,
        max_lifetime_s=body.max_lifetime_seconds,
        limits=parse_limits(body, base),
    )


def parse_sandbox_query(query: schemas.ListSandboxes, owner: Owner | None) -> SandboxQuery:
    """Build which sandboxes to list."""
    return SandboxQuery(
        owner=owner,
        statuses=frozenset(query.status),
        image=query.image,
        session_key=query.session_key,
        metadata=dict(label.split("=", 1) for label in query.metadata),
        offset=query.offset,
        limit=query.limit,
    )


def parse_audit_query(query: schemas.ListAudit) -> AuditQuery:
    """Build which audit rows to list."""
    return AuditQuery(**query.model_dump())


def parse_execution(body: schemas.RunFields, idempotency_key: str | None = None, **more: Any) -> NewExecution:
    """Build what the core is asked to run. Raises InvalidRequest unless exactly one thing is to be run."""
    kind, code = _parse_kind(body)
    if body.stdin and body.stdin_base64:
        raise InvalidRequest("stdin and stdin_base64 are both given: send one")
    stdin = base64.b64decode(body.stdin_base64) if body.stdin_base64 else body.stdin.encode() or None
    return NewExecution(
        kind=kind,
        code=code,
        argv=tuple(body.argv),
        timeout_s=body.timeout_seconds,
        grace_s=body.grace_seconds,
        idle_timeout_s=body.idle_timeout_seconds,
        env=body.env,
        cwd=body.cwd,
        echo=body.echo,
        output_bytes=body.output_bytes,
        output_max_bytes=body.output_max_bytes,
        kill_leftovers=body.kill_leftovers,
        stdin=stdin,
        idempotency_key=idempotency_key,
        **more,
    )


def parse_one_shot(body: schemas.Run, base: Limits) -> OneShot:
    """Build what the core is asked to run in a sandbox of its own. Raises InvalidRequest."""
    files: dict[str, bytes] = {}
    for file in body.files:
        given = file.model_fields_set & {"text", "base64"}
        if len(given) != 1:
            raise InvalidRequest(f"files: give {file.path[:100]!r} exactly one of text and base64")
        files[file.path] = base64.b64decode(file.base64) if "base64" in given else file.text.encode()
    return OneShot(
        request=parse_execution(body),
        image=body.image,
        limits=parse_limits(body, base),
        files=files,
        max_files=body.max_files,
        max_bytes=body.max_bytes,
    )


def render_one_shot(result: OneShotResult, encoding: str) -> dict[str, Any]:
    """Write how a run in a sandbox of its own ended."""
    files = [
        {
            "path": file.path,
            "action": file.action,
            "size_bytes": len(file.content),
            "base64": base64.b64encode(file.content).decode(),
        }
        for file in result.files
    ]
    return {**render_execution(result.execution, encoding), "files": files, "files_complete": result.files_complete}


def _parse_kind(body: schemas.RunFields) -> tuple[ExecKind, str]:
    given = body.model_fields_set & {"command", "code", "argv"}
    if len(given) != 1:
        raise InvalidRequest("say what to run with exactly one of command, code and argv")
    if "argv" in given:
        return ExecKind.ARGV, ""
    if "command" in given:
        return ExecKind.SHELL, body.command
    if body.language == "bash":
        return ExecKind.SHELL, body.code
    return (ExecKind.SCRIPT if getattr(body, "fresh", False) else ExecKind.CELL), body.code


def render_time(seconds: float) -> str:
    """Write a time as ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def render_optional_time(seconds: float | None) -> str | None:
    """Write a time as ISO 8601, or nothing."""
    return None if seconds is None else render_time(seconds)


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
        "network_enabled": False,
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


def render_usage(usage: Usage) -> dict[str, Any]:
    """Write what a sandbox uses."""
    return dataclasses.asdict(usage)


def render_execution(execution: Execution, encoding: str = "utf-8") -> dict[str, Any]:
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
        **(_NO_RESULT | {"encoding": encoding} if result is None else render_result(result, encoding)),
    }


def render_recorded(execution: Execution, encoding: str = "utf-8") -> dict[str, Any]:
    """Write an execution as it was recorded, with its code."""
    return {**render_execution(execution, encoding), "code": execution.code, "request_id": execution.request_id}


def render_result(result: ExecResult, encoding: str) -> dict[str, Any]:
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
        "error": None if result.error is None else dict(result.error),
        "files_changed": [
            {"path": change.path, "action": change.action, "size_bytes": change.size} for change in result.files_changed
        ],
        "files_changed_complete": result.files_changed_complete,
        "duration_ms": result.duration_ms,
        "cpu_ms": result.cpu_ms,
        "cells_back": result.cells_back,
        "protected": result.protected,
        "why_unprotected": result.why_unprotected,
        "notes": list(result.notes),
    }


_NO_RESULT: dict[str, Any] = {
    **dict.fromkeys(
        ("exit_code", "cause", "state", "hint", "limit", "peak", "error", "why_unprotected"),
    ),
    **dict.fromkeys(("timed_out", "truncated", "files_changed_complete", "protected"), False),
    **dict.fromkeys(("stdout_bytes", "stderr_bytes", "cells_back", "duration_ms", "cpu_ms"), 0),
    **dict.fromkeys(("stdout", "stderr"), ""),
    "displays": [],
    "files_changed": [],
    "notes": [],
}


def render_bytes(data: bytes, encoding: str) -> str:
    """Write output as text, with U+FFFD for what is none, or as base64."""
    return base64.b64encode(data).decode() if encoding == "base64" else data.decode("utf-8", "replace")


def render_display(display: Display) -> dict[str, Any]:
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


def render_image(spec: ImageSpec, status: ImageStatus, default: str) -> dict[str, Any]:
    """Write an image and whether it is built."""
    return {
        "name": spec.name,
        "description": spec.description,
        "digest": status.digest,
        "state": "built" if status.built else "not_built",
        "is_default": spec.name == default,
        "size_bytes": status.size_bytes,
        "built_at": render_optional_time(status.built_at),
        "preload": list(spec.preload),
    }
