"""Inside: for each file `victim-PID`, try to write to that process, to trace and to signal it; report what happened."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_name = sys.argv[1]


def _attempt(act: Callable[[], object]) -> int:
    try:
        act()
    except OSError as error:
        return error.errno or -1
    return 0


def _reach(pid: int) -> dict[str, int]:
    return {
        "output": _attempt(lambda: os.close(os.open(f"/proc/{pid}/fd/1", os.O_WRONLY))),
        "memory": _attempt(lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))),
        "folder": _attempt(lambda: os.readlink(f"/proc/{pid}/cwd")),
        "signal": _attempt(lambda: os.kill(pid, 0)),
    }


def _write(path: str, text: str) -> None:
    with open(f"{path}.new", "w", encoding="ascii") as file:
        file.write(text)
    os.rename(f"{path}.new", path)


_child = os.fork()
if _child == 0:
    time.sleep(3600)
_write(f"/workspace/{_name}.child", json.dumps(_reach(_child)))
_write(f"/workspace/{_name}.pid", str(os.getpid()))
while True:
    for _file in os.listdir("/workspace"):
        _prefix, _, _pid = _file.partition("-")
        if _prefix == "victim" and not os.path.exists(f"/workspace/{_name}.reached-{_pid}"):
            _write(f"/workspace/{_name}.reached-{_pid}", json.dumps(_reach(int(_pid))))
    time.sleep(0.01)
