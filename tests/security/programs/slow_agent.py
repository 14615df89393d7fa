"""Inside: slow the agent down, whose uid is ours; then do what libraries do to their own process."""

from __future__ import annotations

import ctypes
import json
import os
import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_AGENT = 1
_SCHED_SETATTR, _IOPRIO_SET = {"x86_64": (314, 251), "aarch64": (274, 30)}[platform.machine()]
_IDLE = 3 << 13
_libc = ctypes.CDLL(None, use_errno=True)


def _call(*arguments: int) -> None:
    if _libc.syscall(*(ctypes.c_long(value) for value in arguments)) < 0:
        raise OSError(ctypes.get_errno(), "")


def _attempt(act: Callable[[], object]) -> int:
    try:
        act()
    except OSError as error:
        return error.errno or 0
    return 0


_idle = ctypes.create_string_buffer(b"".join(number.to_bytes(4, "little") for number in (48, os.SCHED_IDLE)), 48)
_attempts: dict[str, Callable[[], object]] = {
    "policy": lambda: os.sched_setscheduler(_AGENT, os.SCHED_IDLE, os.sched_param(0)),
    "parameters": lambda: os.sched_setparam(_AGENT, os.sched_param(0)),
    "attributes": lambda: _call(_SCHED_SETATTR, _AGENT, ctypes.addressof(_idle), 0),
    "affinity": lambda: os.sched_setaffinity(_AGENT, {min(os.sched_getaffinity(0))}),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, _AGENT, 19),
    "priority of its group": lambda: os.setpriority(os.PRIO_PGRP, os.getpgid(_AGENT), 19),
    "priority of its user": lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),
    "disk": lambda: _call(_IOPRIO_SET, 1, _AGENT, _IDLE),
    "disk of its group": lambda: _call(_IOPRIO_SET, 2, os.getpgid(_AGENT), _IDLE),
    "disk of its user": lambda: _call(_IOPRIO_SET, 3, os.getuid(), _IDLE),
}
print(json.dumps({name: _attempt(act) for name, act in _attempts.items()}))

os.sched_setaffinity(0, os.sched_getaffinity(0))
os.sched_setaffinity(os.getpid(), os.sched_getaffinity(0))
os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0))
os.setpriority(os.PRIO_PROCESS, os.getpid(), os.getpriority(os.PRIO_PROCESS, 0))
os.nice(1)
_call(_IOPRIO_SET, 1, 0, _IDLE)
