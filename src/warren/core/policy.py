"""What the operator decided, as plain values: `app.py` builds it from the settings, so that the core reads none."""

from __future__ import annotations

from dataclasses import dataclass, field

from warren.domain import KIB, Limits
from warren.records import Holding


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything the use cases need to know of the operator's choices."""

    image: str = "data"
    limits: Limits = field(default_factory=Limits)
    timeout_s: float | None = None
    idle_timeout_s: float | None = 1800
    max_lifetime_s: float | None = None
    stopped_lifetime_s: float | None = 7 * 86_400
    pool_size: int = 0
    pool_images: tuple[str, ...] = ()
    own: Holding = field(default_factory=Holding)
    """What one principal may hold; 0 is no limit."""
    everybody: Holding = field(default_factory=Holding)
    own_executions: int = 64
    executions: int = 256
    requests_per_minute: int = 0
    creates_per_minute: int = 0
    creates: int = 8
    """Sandboxes being made at once."""
    waiting: int = 512
    wait_s: float = 30.0
    output_bytes: int = 64 * KIB
    """Kept of the code, stdout and stderr of an execution, each."""
    audit_output_bytes: int = 4 * KIB
    kept_executions: int = 1000
