"""Encoding of values as text and bytes: decoding returns an equal value, whatever strings it holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from warren.domain.egress import Egress, EgressMode, EgressRule
from warren.domain.values import Cause, Display, ExecResult, FileChange, State

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRANSIENT = ("collected", "collected_complete")
"""Fields that are empty once the response was sent."""
_PLAIN_FIELDS = tuple(
    name
    for name in ExecResult.__slots__
    if name not in {"stdout", "stderr", "displays", "files_changed", "error", "notes", *_TRANSIENT}
)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def dump_text(text: str) -> str | bytes:
    """Return text as it is, or as bytes where it holds a lone surrogate, which UTF-8 cannot encode."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def load_text(stored: object) -> str:
    """Undo `dump_text`. Raises ValueError for anything that it would not have written."""
    if isinstance(stored, str):
        return stored
    if not isinstance(stored, bytes):
        raise ValueError(f"{type(stored).__name__} instead of text")  # noqa: TRY004 - one error for all that is wrong
    text = stored.decode("utf-8", "surrogatepass")
    if dump_text(text) != stored:
        raise ValueError("text stored as bytes")
    return text


def dump_json(value: object) -> str | bytes:
    """Encode JSON. Unescaped, because two escaped lone surrogates would be decoded as one character."""
    return dump_text(_encode(value))


def load_json(stored: object) -> Any:
    """Undo `dump_json`. Raises ValueError."""
    return json.loads(load_text(stored))


def load_mapping(stored: object) -> dict[str, Any]:
    """Decode JSON that must be an object. Raises ValueError."""
    value = load_json(stored)
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__} instead of an object")  # noqa: TRY004 - as above
    return value


def dump_rule(rule: EgressRule) -> dict[str, object]:
    """Encode an egress rule."""
    return {"host": rule.host, "ports": rule.ports, "methods": rule.methods, "until": rule.until}


def load_rule(fields: Mapping[str, Any]) -> EgressRule:
    """Undo `dump_rule`. Raises KeyError or TypeError."""
    return EgressRule(
        host=fields["host"], ports=tuple(fields["ports"]), methods=tuple(fields["methods"]), until=fields["until"]
    )


def dump_egress(egress: Egress) -> str | bytes:
    """Encode an egress policy."""
    return dump_json({"mode": egress.mode, "rules": [dump_rule(rule) for rule in egress.rules]})


def load_egress(stored: object) -> Egress:
    """Undo `dump_egress`. Raises ValueError, KeyError or TypeError."""
    fields = load_mapping(stored)
    return Egress(mode=EgressMode(fields["mode"]), rules=tuple(map(load_rule, fields["rules"])))


def dump_result(result: ExecResult) -> str | bytes:
    """Encode a result without stdout and stderr, which are stored as bytes."""
    fields: dict[str, object] = {name: getattr(result, name) for name in _PLAIN_FIELDS}
    fields["error"] = None if result.error is None else dict(result.error)
    fields["notes"] = result.notes
    fields["displays"] = [(dict(each.data), dict(each.metadata), each.is_result) for each in result.displays]
    fields["files_changed"] = [(each.path, each.action, each.size) for each in result.files_changed]
    return dump_json(fields)


def load_result(stored: object, stdout: bytes, stderr: bytes) -> ExecResult:
    """Undo `dump_result`. Raises ValueError, TypeError or KeyError; fields of a later version are ignored."""
    fields: Mapping[str, Any] = load_mapping(stored)
    plain = {name: fields[name] for name in _PLAIN_FIELDS if name in fields}
    return ExecResult(
        **{**plain, "cause": Cause(fields["cause"]), "state": State(fields["state"])},
        stdout=stdout,
        stderr=stderr,
        error=fields["error"],
        notes=tuple(fields["notes"]),
        displays=tuple(Display(*each) for each in fields["displays"]),
        files_changed=tuple(FileChange(*each) for each in fields["files_changed"]),
    )
