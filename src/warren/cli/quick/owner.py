"""Ids of sandboxes that say which command made them, so that the sandbox of a killed command can be found."""

from __future__ import annotations

import os

_PREFIX = "run_"


def new_owned_id() -> str:
    """Make the id of a sandbox that belongs to this process."""
    return f"{_PREFIX}{_owner(os.getpid())}z{os.urandom(4).hex()}"


def is_orphan(sandbox_id: str) -> bool:
    """Whether a command of this pid namespace made it and is gone; of other namespaces we cannot tell."""
    owner, _, _ = sandbox_id.removeprefix(_PREFIX).partition("z")
    if not sandbox_id.startswith(_PREFIX) or not owner.endswith(f"x{_namespace()}"):
        return False
    return _owner(int(owner.partition("y")[0], 16)) != owner


def _owner(pid: int) -> str:
    from warren.engines.procfs import start_time

    return f"{pid:x}y{start_time(pid):x}x{_namespace()}"


def _namespace() -> str:
    return f"{os.stat('/proc/self/ns/pid').st_ino:x}"
