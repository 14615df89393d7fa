"""Processes of this host from /proc: identity for every engine, ancestry and cost for one without cgroups."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import NamedTuple

_ENDED = frozenset("ZX")


class Process(NamedTuple):
    """One line of /proc/PID/stat. A pid comes again; a pid with its start time does not."""

    pid: int
    parent: int
    session: int
    start: int
    threads: int
    cpu_us: int


def read(pid: int) -> Process | None:
    """Read one process; None when it has ended (a zombie has)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            text = stat.read()
    except OSError:
        return None
    # The name, in parentheses, may hold spaces and parentheses.
    fields = text[text.rindex(b")") + 2 :].decode().split()
    if fields[0] in _ENDED:
        return None
    cpu_us = sum(int(field) for field in fields[11:15]) * 1_000_000 // os.sysconf("SC_CLK_TCK")
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), int(fields[17]), cpu_us)


def pid_of(pidfd: int) -> int:
    """Return the pid of a pidfd; -1 when the process has ended, or it is no pidfd."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        numbers = [int(line.split()[1]) for line in file if line.startswith("Pid:")]
    return numbers[0] if numbers else -1


def start_time(pid: int) -> int:
    """Return the start time of a process in ticks since boot; 0 when it has ended."""
    process = read(pid)
    return process.start if process is not None else 0


def arguments_at() -> tuple[int, int]:
    """Return the addresses in this process at which its command line begins and ends, as others see it."""
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    return int(fields[45]), int(fields[46])


def is_alive(pid: int, start: int) -> bool:
    """Whether process `pid` is the one that began at `start`, and has not ended."""
    return start > 0 and start_time(pid) == start


def find(mark: bytes, first: tuple[int, int] = (0, 0)) -> list[Process]:
    """List the live processes that were started with `mark` (`NAME=value`) in their environment, and all below them.

    `first` is the pid and start time of one that hides its environment, as an agent does from all but root.
    """
    everything = [p for name in os.listdir("/proc") if name.isdigit() and (p := read(int(name))) is not None]
    ours = {p.pid for p in everything if (p.pid, p.start) == first or _is_marked(p.pid, mark)}
    sessions = {p.session for p in everything if p.pid in ours and p.session == p.pid}
    if all(p.pid != first[0] for p in everything):
        # Its session outlives it, and no pid is reused while a session has that number.
        sessions |= {first[0]} - {0}
    grown = True
    while grown:
        more = {p.pid for p in everything if p.parent in ours or p.session in sessions} - ours
        ours |= more
        grown = bool(more)
    return [p for p in everything if p.pid in ours]


def kill_all(mark: bytes, first: tuple[int, int] = (0, 0), deadline_s: float = 5.0) -> bool:
    """Kill every process that `find` names, again until there is none; False when some are left at the deadline."""
    deadline = time.monotonic() + deadline_s
    while found := find(mark, first):
        for process in found:
            # SAFE BECAUSE: the pid was alive with our mark an instant ago, and pids are not reused within that.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def private_bytes(pid: int) -> int:
    """Return the private memory of a process: anonymous and shared-memory pages."""
    total = 0
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) << 10
    return total


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return mark in environ.read().split(b"\0")
    except OSError:
        return False
