"""systemd scopes: a delegated control group in warren.slice, in which the keeper makes those of sandboxes.

A scope outlives the command, the login session and the service that requested it, and systemd does not touch its group.
Neither holds for the group of a shell or a service.
"""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass

from warren.engines.local.linux import cgroup_hierarchies

_RUNNING = "/run/systemd/system"
"""Exists where systemd is the init of this host (sd_booted(3))."""
_STOP_TIMEOUT_S = 20
"""The keeper ends its sandboxes in this time when the scope is stopped, at shutdown for example."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The start of a process in its own scope."""

    name: str
    prefix: tuple[str, ...]
    """The command line before the program."""


def is_needed() -> bool:
    """Whether systemd manages the hierarchy of our controllers."""
    return os.path.isdir(_RUNNING) and cgroup_hierarchies.uses_v2()


def plan_scope(name: str, description: str) -> Scope | str:
    """Return a scope whose name begins with `name`; or the reason why there is none."""
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
