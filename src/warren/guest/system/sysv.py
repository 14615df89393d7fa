"""System V shared memory outlives the programs that made it; when memory runs out, what nobody uses must go.

Everything else a program takes is freed by its death. This would hold the memory of the sandbox for ever, and every
later program would die of it.
"""

from __future__ import annotations

import contextlib
import ctypes

_IPC_RMID = 0
_libc = ctypes.CDLL(None, use_errno=True)


def drop_orphans() -> int:
    """Remove the segments that nobody has attached; returns how many.

    Only for a sandbox: elsewhere they may be somebody else's.
    """
    removed = 0
    # A kernel without the table has no such memory.
    with contextlib.suppress(OSError, ValueError), open("/proc/sysvipc/shm", encoding="ascii") as table:
        names = table.readline().split()
        number, attached = names.index("shmid"), names.index("nattch")
        # Row by row: there may be thousands, and we are short of memory.
        for line in table:
            row = line.split()
            if row[attached] == "0":
                removed += _libc.shmctl(int(row[number]), _IPC_RMID, None) == 0
    return removed
