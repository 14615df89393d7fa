"""Processes: find and kill them by /proc, check a claimed pid, and free the memory that outlives them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MARK = "WARREN_EXECUTION"
"""The environment variable that names the execution that started a process."""
ROUNDS = 8
"""How often to search again for processes that were forked while their parents were killed."""
_IPC_RMID = 0


@dataclass(frozen=True, slots=True)
class Stat:
    """The used part of /proc/PID/stat."""

    pid: int
    state: str
    parent: int
    session: int
    children_ticks: int


def parse_stat(text: bytes) -> Stat:
    """Parse one line of /proc/PID/stat; the name in parentheses may hold anything."""
    number, _, rest = text.partition(b" ")
    fields = rest[rest.rindex(b")") + 2 :].split()
    return Stat(int(number), fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[13]) + int(fields[14]))


def list_stats() -> list[Stat]:
    """Read all visible processes."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                found.append(parse_stat(_read(f"/proc/{name}/stat")))
    return found


def find(session: int | None, execution: str | None, *, contained: bool) -> list[Stat]:
    """List the live processes of a session and, in a sandbox, its descendants and those that carry the mark.

    Without containment the other processes of this machine are not the sandbox's: only the session counts.
    """
    stats = [stat for stat in list_stats() if stat.state not in "ZX"]
    found = {stat.pid for stat in stats if stat.session == session}
    if contained:
        if execution is not None:
            found.update(stat.pid for stat in stats if stat.pid not in found and _has_mark(stat.pid, execution))
        if session is not None:
            found.add(session)
        size = 0
        while size != len(found):
            size = len(found)
            found.update(stat.pid for stat in stats if stat.parent in found)
    return [stat for stat in stats if stat.pid in found and stat.pid > 1 and stat.pid != os.getpid()]


def end(
    session: int | None, execution: str | None, *, contained: bool, spare: Iterable[int] = (), spare_ours: bool = False
) -> None:
    """Kill all that `find` lists, and search again until no new one is found.

    `spare` lists processes to leave alone; `spare_ours` leaves our own children alone, except the session leader.
    """
    done = set(spare)
    for _ in range(ROUNDS):
        found = [stat for stat in find(session, execution, contained=contained) if stat.pid not in done]
        if not found:
            return
        for stat in found:
            if not spare_ours or stat.pid == session or stat.parent != os.getpid():
                send(stat.pid, signal.SIGKILL)
            # Killed processes may not have ended yet: only a new one needs another round.
            done.add(stat.pid)


def send(pid: int, number: int) -> None:
    """Send a signal to one process; nothing happens when it has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def send_group(group: int, number: int) -> None:
    """Send a signal to a process group, or to its leader while the group does not exist yet."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        send(group, number)
    except PermissionError:
        return


def ignores(pid: int, number: int) -> bool:
    """Return whether a process ignores a signal; False when it has ended."""
    try:
        status = _read(f"/proc/{pid}/status")
        mask = int(status.partition(b"\nSigIgn:")[2].split(maxsplit=1)[0], 16)
    except (OSError, ValueError, IndexError):
        return False
    return bool(mask >> (number - 1) & 1)


def is_child(pid: int) -> bool:
    """Return whether `pid` is a child of this process that has not been reaped."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (ChildProcessError, OverflowError):
        return False
    return True


def drop_orphan_memory() -> int:
    """Remove the System V shared memory segments that no process has attached; returns how many.

    They outlive the programs that made them: in a sandbox that ran out of memory, every later program would die of it.
    Only for a sandbox: elsewhere they may belong to other programs.
    """
    remove = ctypes.CDLL(None, use_errno=True).shmctl
    removed = 0
    # A kernel without the table has no such memory.
    with contextlib.suppress(OSError, ValueError), open("/proc/sysvipc/shm", encoding="ascii") as table:
        names = table.readline().split()
        number, attached = names.index("shmid"), names.index("nattch")
        # Row by row: there may be thousands, and memory is short.
        for line in table:
            row = line.split()
            if row[attached] == "0":
                removed += remove(int(row[number]), _IPC_RMID, None) == 0
    return removed


def _has_mark(pid: int, execution: str) -> bool:
    try:
        return f"{MARK}={execution}".encode() in _read(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return False


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 256 << 10)
    finally:
        os.close(fd)
