"""What a caller asks to run, and what becomes of it on its way to the agent."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from warren.domain import MIB, Echo, ExecKind, ExecRequest
from warren.errors import InvalidRequest, TooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.core.policy import Policy

MAX_CODE_BYTES = 4 * MIB - 4096
"""What fits into one frame of the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExecution:
    """One run of code or a command, as a caller asks for it."""

    kind: ExecKind = ExecKind.CELL
    code: str = ""
    kernel: str = "main"
    argv: tuple[str, ...] = ()
    timeout_s: float | None = None
    """None: the operator's default."""
    grace_s: float = 1.0
    """Between an interrupt and the kill."""
    idle_timeout_s: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """May hold secrets: never recorded."""
    cwd: str | None = None
    echo: Echo = Echo.DISPLAY
    output_bytes: int = MIB
    output_max_bytes: int = 256 * MIB
    kill_leftovers: bool = False
    scan_changes: bool = True
    stdin: bytes | None = None
    """Given up front."""
    stdin_open: bool = False
    """More is written later, with `write_stdin`, until `close_stdin`. Only for what is begun or started."""
    background: bool = False
    idempotency_key: str | None = None


_OURS = {"stdin", "stdin_open", "background", "idempotency_key"}
_PASSED_ON = tuple(one.name for one in fields(NewExecution) if one.name not in _OURS and one.name != "timeout_s")


def build_request(new: NewExecution, execution_id: str, policy: Policy, *, stream: bool) -> ExecRequest:
    """Build what the agent is told. Raises InvalidRequest and TooLarge."""
    try:
        size = len(new.code.encode("utf-8", "surrogatepass"))
    except UnicodeEncodeError as error:
        raise InvalidRequest("the code is not text") from error
    if size > MAX_CODE_BYTES:
        raise TooLarge(f"code is at most {MAX_CODE_BYTES} bytes: write a longer program to a file and run that")
    timeout_s = policy.timeout_s if new.timeout_s is None else new.timeout_s
    same = {name: getattr(new, name) for name in _PASSED_ON}
    return ExecRequest(id=execution_id, timeout_s=timeout_s, stream=stream, **same)


def build_fingerprint(sandbox_id: str, new: NewExecution) -> str:
    """Hash everything that was asked for: equal requests have equal fingerprints, and none can be read from one."""
    asked = {one.name: getattr(new, one.name) for one in fields(NewExecution) if one.name != "idempotency_key"}
    asked["stdin"] = None if new.stdin is None else hashlib.sha256(new.stdin).hexdigest()
    asked["env"] = sorted(new.env.items())
    text = json.dumps(["execution", sandbox_id, asked], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
