"""From the words of the native API to ours. Pure: values in, values out."""

from __future__ import annotations

import base64
import dataclasses
import functools
from typing import TYPE_CHECKING

from warren.core.executions.oneshot import OneShot
from warren.core.executions.request import NewExecution
from warren.core.sandboxes.changes import SandboxChanges
from warren.core.sandboxes.sandboxes import NewSandbox
from warren.domain.errors import InvalidRequest
from warren.domain.gpus import GpuRequest
from warren.domain.records import AuditQuery, SandboxQuery
from warren.domain.values import MIB, ExecKind
from warren.gateway.dialects.native.translate_egress import parse_egress

if TYPE_CHECKING:
    from warren.domain.records import Owner
    from warren.domain.values import Limits
    from warren.gateway.dialects.native.schemas_audit import ListAudit
    from warren.gateway.dialects.native.schemas_executions import RunFields
    from warren.gateway.dialects.native.schemas_renders import Asset
    from warren.gateway.dialects.native.schemas_run import InputFile, Run
    from warren.gateway.dialects.native.schemas_sandboxes import (
        CreateSandbox,
        LimitFields,
        ListSandboxes,
        UpdateSandbox,
    )

_LIMITS = (
    ("memory_mb", "memory_bytes", MIB),
    ("disk_mb", "disk_bytes", MIB),
    ("checkpoint_mb", "checkpoint_bytes", MIB),
    ("cpu", "cpus", 1),
    ("pids", "pids", 1),
    ("checkpoints", "checkpoints", 1),
)
_UNCHANGED = {one.name for one in dataclasses.fields(NewExecution)} - {"code", "argv", "stdin"}
_PART = 4 << 18
"""Of base64: a multiple of four letters, which are three bytes."""


def parse_limits(body: LimitFields | Run, base: Limits) -> Limits | None:
    """Build the limits that were asked for over those that hold otherwise; None when nothing was."""
    chosen = {name: value * unit for field, name, unit in _LIMITS if (value := getattr(body, field, None)) is not None}
    return dataclasses.replace(base, **chosen) if chosen else None


def parse_new_sandbox(body: CreateSandbox, base: Limits, idempotency_key: str | None) -> NewSandbox:
    """Build what the core is asked for."""
    return NewSandbox(
        image=body.image,
        limits=parse_limits(body, base),
        storage=body.storage,
        env=body.env,
        egress=parse_egress(body.egress, body.network_enabled),
        metadata=body.metadata,
        session_key=body.session_key,
        idle_timeout_s=body.idle_timeout_seconds,
        max_lifetime_s=body.max_lifetime_seconds,
        idempotency_key=idempotency_key,
        gpus=parse_gpus(body.gpus),
    )


def parse_gpus(asked: str | int | list[str] | None) -> GpuRequest | None:
    """Build which GPUs are asked for; None where nothing is said. Raises InvalidRequest."""
    return None if asked is None else GpuRequest.parse(asked)


def parse_changes(body: UpdateSandbox, base: Limits) -> SandboxChanges:
    """Build what the core is asked to change."""
    return SandboxChanges(
        metadata=body.metadata,
        idle_timeout_s=body.idle_timeout_seconds,
        max_lifetime_s=body.max_lifetime_seconds,
        limits=parse_limits(body, base),
        egress=parse_egress(body.egress),
    )


def parse_sandbox_query(query: ListSandboxes, owner: Owner | None) -> SandboxQuery:
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


def parse_audit_query(query: ListAudit) -> AuditQuery:
    """Build which audit rows to list."""
    return AuditQuery(**query.model_dump())


def parse_execution(body: RunFields, idempotency_key: str | None = None) -> NewExecution:
    """Build an execution for the core. Raises InvalidRequest unless exactly one thing is to be run."""
    kind, code = _parse_kind(body)
    if body.stdin and body.stdin_base64:
        raise InvalidRequest("stdin and stdin_base64 are both given: send one")
    stdin = base64.b64decode(body.stdin_base64) if body.stdin_base64 else body.stdin.encode() or None
    same = {name: getattr(body, field) for field, name in _find_same(type(body))}
    return NewExecution(
        kind=kind, code=code, argv=tuple(body.argv), stdin=stdin, idempotency_key=idempotency_key, **same
    )


def parse_one_shot(body: Run, base: Limits) -> OneShot:
    """Build what the core is asked to run in a sandbox of its own. Raises InvalidRequest."""
    files = {file.path: parse_content(file, f"files: give {file.path[:100]!r}") for file in body.files}
    return OneShot(
        request=parse_execution(body),
        image=body.image,
        limits=parse_limits(body, base),
        egress=parse_egress(body.egress),
        gpus=parse_gpus(body.gpus),
        files=files,
        max_files=body.max_files,
        max_bytes=body.max_bytes,
    )


def parse_content(given: InputFile | Asset, ask: str) -> bytes:
    """Return a content that is given as text or as base64. Raises InvalidRequest for both or neither: `ask` one."""
    known = given.model_fields_set & {"text", "base64"}
    if len(known) != 1:
        raise InvalidRequest(f"{ask} exactly one of text and base64")
    if "text" in known:
        return given.text.encode("utf-8", "replace")
    # A part at a time: where this is done in a thread, nobody else gets a turn while one is decoded.
    parts = (given.base64[at : at + _PART] for at in range(0, len(given.base64), _PART))
    return b"".join(map(base64.b64decode, parts))


@functools.cache
def _find_same(model: type[RunFields]) -> tuple[tuple[str, str], ...]:
    """Pair each field of a body with the field of an execution that it is passed to unchanged."""
    names = ((field, field.replace("_seconds", "_s")) for field in model.model_fields)
    return tuple((field, name) for field, name in names if name in _UNCHANGED)


def _parse_kind(body: RunFields) -> tuple[ExecKind, str]:
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
