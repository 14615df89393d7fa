"""A request to run something, as an agent reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warren.domain.values import ExecRequest

_USUAL: dict[str, Any] = {
    "kind": "cell",
    "kernel": "main",
    "argv": [],
    "timeout_ms": None,
    "idle_timeout_ms": None,
    "grace_ms": 1000,
    "stdin": False,
    "stream": True,
    "whole": False,
    "paced": False,
    "env": {},
    "cwd": None,
    "echo": "display",
    "file": "",
    "label": "",
    "figures": "",
    "collect": "",
    "scratch": [],
    "output_bytes": 1 << 20,
    "output_max_bytes": 256 << 20,
    "output_keep": "ends",
    "leftover": "keep",
    "changes": True,
    "checkpoint": True,
}
"""What an agent takes for granted."""


def render_request(request: ExecRequest) -> dict[str, Any]:
    """Build the parameters of a `run`; what has its default is left out."""
    asked = {
        "kind": request.kind,
        "kernel": request.kernel,
        "argv": list(request.argv),
        "timeout_ms": _milliseconds(request.timeout_s),
        "idle_timeout_ms": _milliseconds(request.idle_timeout_s),
        "grace_ms": _milliseconds(request.grace_s),
        "stream": request.stream,
        # Whoever does not follow it as it happens is told once, and of all.
        "whole": not request.stream,
        "paced": request.paced,
        "env": dict(request.env),
        "cwd": request.cwd,
        "echo": request.echo,
        "file": request.file,
        "label": request.label,
        "figures": request.figures,
        "collect": request.collect,
        "scratch": list(request.scratch),
        "output_bytes": request.output_bytes,
        "output_max_bytes": request.output_max_bytes,
        "output_keep": request.output_keep,
        "leftover": "kill" if request.kill_leftovers else "keep",
        "changes": request.scan_changes,
        "checkpoint": request.checkpoint,
    }
    return {"exec": request.id, **{name: value for name, value in asked.items() if value != _USUAL[name]}}


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
