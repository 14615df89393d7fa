"""What an engine sends an agent at its start. Apart from `frames`, whose importers need no dataclasses."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Boot:
    """The facts with which an engine starts an agent. Descriptors are already open in the agent's process."""

    sandbox_id: str
    listener_fd: int
    """A listening unix socket; each gateway connection is accepted here."""
    workspace: str = "/workspace"
    env: dict[str, str] = field(default_factory=dict)
    """The complete environment of everything that runs user code: nothing is inherited."""
    limits: dict[str, float] = field(default_factory=dict)
    """`domain.Limits` as plain numbers, reported beside a cause."""
    facts: dict[str, int] = field(default_factory=dict)
    """Read-only descriptors of the operating system's counters, by name: see guest/system/facts.py. May be empty."""
    contained: bool = True
    """False on the bare engine: the agent is not process 1, and must not kill anything outside its sessions."""
    single_use: bool = False
    """Whether the sandbox serves one execution only: then no forkserver waits for a second."""
    preload: tuple[str, ...] = ()
    """Modules that the starting process has imported already; named so that a shadowed one can be found."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Boot:
        """Build it from plain JSON as an engine sends it; unknown keys are an error."""
        value = {**value, "preload": tuple(value.get("preload", ()))}
        return cls(**value)

    def to_json(self) -> dict[str, Any]:
        """Return the plain JSON that `from_json` takes."""
        return dataclasses.asdict(self)
