"""Asks systemd for a scope: a delegated control group in warren.slice, in which the keeper makes those of sandboxes.

A scope outlives the command, the login session and the service that asked for it, and has a group that systemd leaves
alone. The group that a shell or a service was started in has neither.
"""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass

from warren.engines.local.linux import cgroup_hierarchies

_RUNNING = "/run/systemd/system"
"""Systemd's own sign that it is the init of this host (sd_booted(3))."""
_STOP_TIMEOUT_S = 20
"""The keeper ends its sandboxes in this time when the scope is stopped, at shutdown for example."""


@dataclass(frozen=True, slots=True)
class Scope:
    """How a process is started in a scope of its own."""

    name: str
    prefix: tuple[str, ...]
    """What goes before the command."""


def is_needed() -> bool:
    """Whether systemd manages the hierarchy from which our controllers come."""
    return os.path.isdir(_RUNNING) and cgroup_hierarchies.uses_v2()


def plan_scope(name: str, description: str) -> Scope | str:
    """Return how a process gets a scope, whose name begins with `name`; or why it cannot have one."""
    program = shutil.which("systemd-run")
    if program is None:
        return "systemd runs this host, but systemd-run is not installed"
    runtime = f"/run/user/{os.geteuid()}"
    if os.geteuid() != 0 and not os.path.exists(f"{runtime}/systemd/private"):
        return f"no systemd user manager runs for uid {os.geteuid()}"
    # WHY: the variable is not set by su, cron and some settings of ssh, although the manager runs.
    as_user = (f"XDG_RUNTIME_DIR={runtime}", program, "--user")
    unit = f"{name}-{secrets.token_hex(4)}.scope"
    properties = ("Delegate=yes", "TasksMax=infinity", f"TimeoutStopSec={_STOP_TIMEOUT_S}")
    prefix = (
        *((program,) if os.geteuid() == 0 else ("env", *as_user)),
        *("--scope", "--collect", "--quiet", f"--unit={unit}", f"--slice={cgroup_hierarchies.SLICE}"),
        *(f"--property={each}" for each in properties),
        *(f"--description={description}", "--"),
    )
    return Scope(unit, prefix)
