"""Requests to run something: checked, and made into the request of the agent."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from warren.domain.errors import InvalidRequest, TooLarge
from warren.domain.values import MIB, ExecRequest, ExecSpec

if TYPE_CHECKING:
    from warren.core.policy.policy import Policy

MAX_CODE_BYTES = 4 * MIB - 4096
MAX_EXTRA_BYTES = 60_000
"""Fits into one frame of the wire."""
MAX_TIMEOUT_S = 1e7
MAX_GRACE_S = 60.0
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExecution(ExecSpec):
    """One run of code or a command, as a caller asks for it. A `timeout_s` of None is the operator's default."""

    stdin: bytes | None = None
    """Given up front."""
    stdin_open: bool = False
    """More is written later, with `write_stdin`, until `close_stdin`. Only for what is begun or started."""
    background: bool = False
    idempotency_key: str | None = None


_PASSED_ON = tuple(one.name for one in fields(ExecSpec) if one.name != "timeout_s")


def build_request(new: NewExecution, execution_id: str, policy: Policy, *, stream: bool) -> ExecRequest:
    """Build the request of the agent. Raises InvalidRequest and TooLarge."""
    check_name("kernel", new.kernel)
    if new.file:
        check_name("file", new.file)
    _check_sizes(new)
    for name in ("timeout_s", "grace_s", "idle_timeout_s"):
        seconds, most = getattr(new, name), MAX_GRACE_S if name == "grace_s" else MAX_TIMEOUT_S
        if seconds is not None and not 0 <= seconds <= most:
            raise InvalidRequest(f"{name} must be between 0 and {most:g} seconds, not {seconds!r}")
    timeout_s = policy.timeout_s if new.timeout_s is None else new.timeout_s
    same = {name: getattr(new, name) for name in _PASSED_ON}
    return ExecRequest(id=execution_id, timeout_s=timeout_s, stream=stream, **same)


def check_name(what: str, name: str) -> None:
    """Raise InvalidRequest for a name that an agent would refuse."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"{what} must be 1 to 64 letters, digits, dots, dashes or underscores")


def _check_sizes(new: NewExecution) -> None:
    """Raise TooLarge for what does not fit into one frame of the wire, and InvalidRequest for what is not text."""
    if not new.code.isascii() or len(new.code) > MAX_CODE_BYTES:
        try:
            size = len(new.code.encode())
        except UnicodeEncodeError:
            raise InvalidRequest("the code holds half a character, which no file could hold") from None
        if size > MAX_CODE_BYTES:
            raise TooLarge(f"code is at most {MAX_CODE_BYTES} bytes: write a longer program to a file and run that")
    if new.env or new.argv or new.cwd:
        asked = json.dumps([dict(new.env), new.argv, new.cwd], ensure_ascii=False)
        if len(asked.encode("utf-8", "surrogatepass")) > MAX_EXTRA_BYTES:
            raise TooLarge(f"env, argv and cwd are at most {MAX_EXTRA_BYTES} bytes together: put the rest in a file")


def build_fingerprint(sandbox_id: str, new: NewExecution) -> str:
    """Hash the whole request: equal requests have equal fingerprints, and no secret can be read from one."""
    asked = {one.name: getattr(new, one.name) for one in fields(NewExecution) if one.name != "idempotency_key"}
    asked["stdin"] = None if new.stdin is None else hashlib.sha256(new.stdin).hexdigest()
    asked["env"] = sorted(new.env.items())
    text = json.dumps(["execution", sandbox_id, asked], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
