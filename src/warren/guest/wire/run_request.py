"""The `run` request: its fields, their defaults and their names on the wire, declared once for both ends.

The service encodes what differs from a default; the agent takes the default for a missing field.
docs/reference/wire.md has the meaning of each field.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warren.guest.wire.frames import Header

KINDS = ("cell", "script", "shell", "argv")
ECHOES = ("display", "stdout", "none")
KEEPS = ("ends", "head")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One run of code or a command."""

    id: str
    kind: str = "cell"
    code: str = ""
    kernel: str = "main"
    argv: tuple[str, ...] = ()
    timeout_s: float | None = None
    idle_timeout_s: float | None = None
    grace_s: float = 1.0
    stdin: bool = False
    stream: bool = True
    whole: bool = False
    paced: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    echo: str = "display"
    file: str = ""
    label: str = ""
    figures: str = ""
    collect: str = ""
    scratch: tuple[str, ...] = ()
    output_bytes: int = 1 << 20
    output_max_bytes: int = 256 << 20
    output_keep: str = "ends"
    kill_leftovers: bool = False
    scan_changes: bool = True
    checkpoint: bool = True

    def without_content(self) -> RunRequest:
        """Return it without code and arguments, to keep once it has been run."""
        return RunRequest(id=self.id, kind=self.kind, kernel=self.kernel, stream=self.stream, paced=self.paced)


_RENAMED = {
    "timeout_s": "timeout_ms",
    "idle_timeout_s": "idle_timeout_ms",
    "grace_s": "grace_ms",
    "kill_leftovers": "leftover",
    "scan_changes": "changes",
}
WIRE_NAMES = {
    one.name: _RENAMED.get(one.name, one.name) for one in fields(RunRequest) if one.name not in {"id", "code"}
}
"""The parameter of each field. The id is `exec`, and the code is the payload."""
DEFAULTS: dict[str, Any] = {
    one.name: one.default if one.default_factory is MISSING else one.default_factory()
    for one in fields(RunRequest)
    if one.name in WIRE_NAMES
}


def encode_run(request: Any, *, has_stdin: bool = False) -> Header:
    """Build the parameters of a `run` from a value with the fields of RunRequest, `stdin` apart."""
    asked: Header = {"exec": request.id}
    for name, parameter, default in _ENCODED:
        value = getattr(request, name)
        if value != default:
            encode = _ENCODERS.get(name)
            asked[parameter] = value if encode is None else encode(value)
    if has_stdin:
        asked["stdin"] = True
    return asked


def _encode_seconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


_ENCODED = tuple((name, WIRE_NAMES[name], DEFAULTS[name]) for name in WIRE_NAMES if name != "stdin")
_ENCODERS: dict[str, Callable[[Any], object]] = {
    "argv": list,
    "scratch": list,
    "env": dict,
    "timeout_s": _encode_seconds,
    "idle_timeout_s": _encode_seconds,
    "grace_s": _encode_seconds,
    "kill_leftovers": lambda is_kill: "kill" if is_kill else "keep",
}
