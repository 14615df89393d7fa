"""Inside: leave a process behind that is in no session, tree or environment of its execution, and print its pid."""

from __future__ import annotations

import json
import os
import sys
import time

ARGUMENTS = globals().get("ARGUMENTS", [])


def leave(name: str, code: str) -> int:
    """Start it, and return once it is ready."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-I", "-c", code, name], {})
        os._exit(0)
    os.wait()
    while not os.path.exists(f"/workspace/{name}.pid"):
        time.sleep(0.01)
    with open(f"/workspace/{name}.pid", encoding="ascii") as file:
        return int(file.read())


print(json.dumps(leave(*ARGUMENTS)))
