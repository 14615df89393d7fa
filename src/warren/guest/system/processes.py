"""Finding and ending processes by what /proc says, and checking a process number that somebody claims."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MARK = "WARREN_EXECUTION"
"""The environment variable that tells which execution started a process."""
ROUNDS = 8
"""How often to look again for processes that were born while we killed their parents."""


@dataclass(frozen=True, slots=True)
class Stat:
    """The part of /proc/PID/stat that we need."""

    pid: int
    state: str
    parent: int
    session: int
    children_ticks: int


def parse_stat(text: bytes) -> Stat:
    """Read one line of /proc/PID/stat; the name in parentheses may hold anything."""
    number, _, rest = text.partition(b" ")
    fields = rest[rest.rindex(b")") + 2 :].split()
    return Stat(int(number), fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[13]) + int(fields[14]))


def list_stats() -> list[Stat]:
    """Read all processes that we can see."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                found.append(parse_stat(_read(f"/proc/{name}/stat")))
    return found


def find(session: int | None, execution: str | None, *, contained: bool) -> list[Stat]:
    """List the live processes of a session and, in a sandbox, its descendants and whoever carries the mark.

    Without containment the other processes on this machine are not ours: there only the session counts.
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
    session: int | None,
    execution: str | None,
    *,
    contained: bool,
    spare: Iterable[int] = (),
    spare_ours: bool = False,
) -> None:
    """Kill them all, looking again until nobody new is found.

    `spare` lists processes to leave alone; `spare_ours` leaves our own children alone, the session's leader excepted.
    """
    done = set(spare)
    for _ in range(ROUNDS):
        found = [stat for stat in find(session, execution, contained=contained) if stat.pid not in done]
        if not found:
            return
        for stat in found:
            if not spare_ours or stat.pid == session or stat.parent != os.getpid():
                send(stat.pid, signal.SIGKILL)
            # The killed ones may not have gone yet: only a newcomer is worth another round.
            done.add(stat.pid)


def send(pid: int, number: int) -> None:
    """Send a signal to one process; that it has gone is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def send_group(group: int, number: int) -> None:
    """Send a signal to a process group, or to its leader as long as there is no such group yet."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        send(group, number)
    except PermissionError:
        return


def ignores(pid: int, number: int) -> bool:
    """Tell whether a process ignores a signal; not when it has gone."""
    try:
        status = _read(f"/proc/{pid}/status")
        mask = int(status.partition(b"\nSigIgn:")[2].split(maxsplit=1)[0], 16)
    except (OSError, ValueError, IndexError):
        return False
    return bool(mask >> (number - 1) & 1)


def is_child(pid: int) -> bool:
    """Tell whether `pid` is a child of ours that has not been reaped."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (ChildProcessError, OverflowError):
        return False
    return True


def exit_code(status: int) -> int:
    """Turn a wait status into an exit code, -N for signal N."""
    return os.waitstatus_to_exitcode(status)


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
