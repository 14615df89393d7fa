"""What an engine tells an agent when it starts it: one value, and the descriptors that come with it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Boot:
    """The start-up facts of one agent. Descriptor numbers are already open in the agent's process."""

    sandbox_id: str
    listener_fd: int
    """A listening unix socket; each gateway connection is accepted here."""
    workspace: str = "/workspace"
    env: dict[str, str] = field(default_factory=dict)
    """The environment of everything that runs user code, complete: nothing is inherited."""
    limits: dict[str, float] = field(default_factory=dict)
    """`domain.Limits` as plain numbers, to put beside a cause."""
    facts: dict[str, int] = field(default_factory=dict)
    """Read-only descriptors of the kernel's own counters, by name: see guest/system/facts.py. May be empty."""
    contained: bool = True
    """False on the bare engine: there, process 1 is not us and nothing outside the session may be killed."""
    single_use: bool = False
    """Whether one execution is all that will be asked for: then no process waits for a second."""
    preload: tuple[str, ...] = ()
    """Modules the starting process has imported already; named so that a shadowed one can be found."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Boot:
        """Build it from plain JSON as an engine sends it; unknown keys are an error."""
        value = {**value, "preload": tuple(value.get("preload", ()))}
        return cls(**value)

    def to_json(self) -> dict[str, Any]:
        """Return the plain JSON that `from_json` takes."""
        return dataclasses.asdict(self)
