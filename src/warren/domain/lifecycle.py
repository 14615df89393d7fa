"""The life of a sandbox, as one table. This file alone decides which status may follow which.

creating ─▶ running ─▶ stopping ─▶ stopped ─▶ starting ─▶ running …
    └──────────┴───────────┴──────────┴───────────┴─────▶ destroying ─▶ gone (its record is removed)

A status that ends in -ing is stored before the engine acts, so that recovery after a crash knows which step was under
way, and finishes it.
"""

from __future__ import annotations

import enum

from warren.domain.errors import Conflict


class Status(enum.StrEnum):
    """Where a sandbox is in its life."""

    CREATING = "creating"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    """No process and no memory; the workspace is kept."""
    STARTING = "starting"
    DESTROYING = "destroying"


NEXT: dict[Status, frozenset[Status]] = {
    Status.CREATING: frozenset({Status.RUNNING, Status.DESTROYING}),
    Status.RUNNING: frozenset({Status.STOPPING, Status.DESTROYING}),
    Status.STOPPING: frozenset({Status.STOPPED, Status.DESTROYING}),
    Status.STOPPED: frozenset({Status.STARTING, Status.DESTROYING}),
    Status.STARTING: frozenset({Status.RUNNING, Status.STOPPED, Status.DESTROYING}),
    Status.DESTROYING: frozenset(),
}

AFTER_CRASH: dict[Status, Status] = {
    Status.CREATING: Status.DESTROYING,
    Status.RUNNING: Status.RUNNING,
    Status.STOPPING: Status.STOPPED,
    Status.STOPPED: Status.STOPPED,
    Status.STARTING: Status.STOPPED,
    Status.DESTROYING: Status.DESTROYING,
}
"""Where a restarted service takes each: no caller waits for a half-made sandbox, and a half-started one stops."""

ACTIVE = frozenset({Status.CREATING, Status.RUNNING, Status.STOPPING, Status.STARTING})
"""Holds memory and processors, and so counts against the quota of active sandboxes."""


def check_next(now: Status, then: Status) -> None:
    """Raise Conflict when a sandbox that is `now` cannot become `then`."""
    if then not in NEXT[now]:
        raise Conflict(f"the sandbox is {now}, so it cannot become {then}")
