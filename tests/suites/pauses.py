"""The tests, while processes of theirs are stopped for a moment at random: what depends on who is faster fails.

    python tests/suites/pauses.py [--seed N] [--longest SECONDS] [pytest's arguments]

A busy machine does the same, seldom and with whom it likes. Some tests of the clock fail here for good reasons; any
other that does has found a race, in itself or in the product. The same seed is not the same run: the others go on.
Who ends this ends the tests, with the same signal, and hears how they ended: nothing stays stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import select
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SET_CHILD_SUBREAPER = 36
_SHORTEST_S = 0.05
_GAP_S = (0.02, 0.1)
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Run pytest with our arguments, and stop what it started, one process at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--longest", type=float, default=0.35, help="seconds that a process may be stopped")
    asked, arguments = parser.parse_known_args()
    print(f"seed {asked.seed}", flush=True)
    # A process that leaves its parent, as keepers do, stays ours: no other process is stopped.
    ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signals = _take_signals()
    tests = _start_tests(arguments or ["--ignore", "tests/vm", "tests"])
    return _pause_until_end(tests, signals, random.Random(asked.seed), asked.longest)


def _take_signals() -> int:
    """Have signals that would end us come as bytes instead, so that none comes between stopping and going on."""
    signals, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told)
    for number in _ENDS:
        # Under nohup the end of a terminal is not ours.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)
    return signals


def _start_tests(arguments: list[str]) -> int:
    pytest = [sys.executable, "-m", "pytest", "--numprocesses", "3", "--dist", "loadfile", *arguments]
    # A group of its own: what a terminal sends to all of one comes to them once, from us.
    return os.posix_spawn(sys.executable, pytest, os.environ, setpgroup=0)


def _pause_until_end(tests: int, signals: int, chance: random.Random, longest_s: float) -> int:
    switches: dict[int, int] = {}
    is_ending = False
    while (code := _reap(tests)) is None:
        before, switches = switches, _count_switches(() if is_ending else _descendants())
        busy = [pid for pid, count in switches.items() if before.get(pid) != count]
        received = None
        for pid in chance.sample(busy, k=min(len(busy), 1)):
            with _stopped(pid):
                received = _rest(signals, chance.uniform(_SHORTEST_S, longest_s))
        received = received or _rest(signals, chance.uniform(*_GAP_S))
        if received is not None:
            is_ending = True
            os.killpg(tests, received)
    return code


def _reap(tests: int) -> int | None:
    """Reap the processes that have ended; returns the exit code of the tests once they have, as a shell would."""
    while (ended := os.waitpid(-1, os.WNOHANG))[0]:
        if ended[0] == tests:
            code = os.waitstatus_to_exitcode(ended[1])
            return 128 - code if code < 0 else code
    return None


def _rest(signals: int, seconds: float) -> int | None:
    """Wait, unless a signal asks us to end: returns the signal then."""
    return os.read(signals, 1)[0] if select.select([signals], [], [], seconds)[0] else None


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[None]:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
            # One that is stopped was stopped by a test, which wants it so.
            if state not in {"T", "t", "Z"}:
                children.setdefault(int(parent), []).append(pid)
    found = list(children.get(os.getpid(), ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def _count_switches(pids: Iterable[int]) -> dict[int, int]:
    """Count how often each has begun to run: who has since the last time is doing something."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8") as file:
            found[pid] = sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
    return found


if __name__ == "__main__":
    sys.exit(main())
