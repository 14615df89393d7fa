"""Requests of the native API as values of the core. Pure: values in, values out."""

from __future__ import annotations

import base64
import dataclasses
import functools
from typing import TYPE_CHECKING

from warren.core.executions.oneshot import OneShot
from warren.core.executions.request import NewExecution
from warren.core.sandboxes.changes import SandboxChanges
from warren.core.sandboxes.sandboxes import NewSandbox
from warren.domain.egress import Egress, EgressMode, EgressRule
from warren.domain.errors import InvalidRequest
from warren.domain.gpus import GpuRequest
from warren.domain.records import SandboxQuery
from warren.domain.values import MIB, ExecKind

if TYPE_CHECKING:
    from warren.domain.records import Owner
    from warren.domain.values import Limits
    from warren.gateway.dialects.native.schemas_egress import EgressBody, EgressRuleBody
    from warren.gateway.dialects.native.schemas_executions import InputFile, Run, RunFields
    from warren.gateway.dialects.native.schemas_renders import Asset
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
"""Characters of base64 in one part: a multiple of four, which are three bytes."""


def parse_limits(body: LimitFields | Run, base: Limits) -> Limits | None:
    """Build the requested limits over the default ones; None when none is requested."""
    chosen = {name: value * unit for field, name, unit in _LIMITS if (value := getattr(body, field, None)) is not None}
    return dataclasses.replace(base, **chosen) if chosen else None


def parse_new_sandbox(body: CreateSandbox, base: Limits, idempotency_key: str | None) -> NewSandbox:
    """Build a new sandbox for the core."""
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
    """Build the requested GPUs; None: the default of the image. Raises InvalidRequest."""
    return None if asked is None else GpuRequest.parse(asked)


def parse_changes(body: UpdateSandbox, base: Limits) -> SandboxChanges:
    """Build the changes to a sandbox."""
    return SandboxChanges(
        metadata=body.metadata,
        idle_timeout_s=body.idle_timeout_seconds,
        max_lifetime_s=body.max_lifetime_seconds,
        limits=parse_limits(body, base),
        egress=parse_egress(body.egress),
    )


def parse_sandbox_query(query: ListSandboxes, owner: Owner | None) -> SandboxQuery:
    """Build the filters of a list of sandboxes."""
    return SandboxQuery(
        owner=owner,
        statuses=frozenset(query.status),
        image=query.image,
        session_key=query.session_key,
        metadata=dict(label.split("=", 1) for label in query.metadata),
        offset=query.offset,
        limit=query.limit,
    )


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
    """Build a one-shot for the core. Raises InvalidRequest."""
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
    """Return a content that is given as text or as base64. Raises InvalidRequest for both or neither."""
    known = given.model_fields_set & {"text", "base64"}
    if len(known) != 1:
        raise InvalidRequest(f"{ask} exactly one of text and base64")
    if "text" in known:
        return given.text.encode("utf-8", "replace")
    # A part at a time: decoding holds the interpreter lock, also in a thread.
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


def parse_egress(asked: EgressBody | None, network_enabled: bool | None = None) -> Egress | None:
    """Build what a sandbox shall be able to reach; None is as the operator decided."""
    if asked is None:
        modes = {True: EgressMode.OPEN, False: EgressMode.NONE}
        return None if network_enabled is None else Egress(mode=modes[network_enabled])
    return Egress(mode=EgressMode(asked.mode), rules=tuple(map(parse_rule, asked.rules)))


def parse_rule(rule: EgressRuleBody) -> EgressRule:
    """Build a rule."""
    return EgressRule(host=rule.host, ports=tuple(rule.ports), methods=tuple(rule.methods))
