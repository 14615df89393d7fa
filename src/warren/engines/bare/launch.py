"""Starts the agent of a bare sandbox: run as a script by the image's interpreter, which has no Warren installed.

Usage: launch.py LIBRARY BOOT_FD. Prints the agent's pid and ends; init adopts the agent, which outlives it.
"""

from __future__ import annotations

import os
import runpy
import sys

_PR_SET_CHILD_SUBREAPER = 36


def main(library: str, boot_fd: int) -> None:
    """Detach and become the agent."""
    if pid := os.fork():
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        os._exit(0)
    os.setsid()
    os.dup2(2, 1)
    sys.path.insert(0, library)
    from warren.guest.system import callbacks

    callbacks.settle()
    import ctypes  # not before that

    # WHY: without it, the host's init adopts processes that user code leaves behind, and the agent cannot reap them.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    sys.argv = ["warren.guest", str(boot_fd)]
    runpy.run_module("warren.guest", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
