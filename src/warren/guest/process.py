"""From a fork of the nursery to a process that runs user code: session, signals, descriptors, environment."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

from warren.guest import forking, packages, reseed, stdio

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTROL_FD = 3
LIVE_OOM_SCORE = 1000
FROZEN_OOM_SCORE = 0
_OUT_OF_THE_WAY = 16


def become(env: dict[str, str], cwd: str, fds: Sequence[int]) -> None:
    """Make this fork a process of its own; `fds` become 0, 1, 2 and, if there is a fourth, 3. All others are closed."""
    os.setsid()
    default_signals()
    _place(fds)
    forking.close_all_but(range(len(fds)))
    settle()
    os.environ.clear()
    os.environ.update(env)
    os.umask(0o022)
    stdio.open_outputs()
    stdio.attach(range(3))
    _enter(cwd)
    reseed.renew_surroundings(packages.search_path(env))
    reseed.renew_randomness()


def settle() -> None:
    """Give a fork that will run user code what is not inherited: who may look into it, and who dies first."""
    forking.set_dumpable(True)
    forking.die_with_parent()
    set_oom_score(LIVE_OOM_SCORE)


def set_oom_score(score: int) -> None:
    """Say how readily the operating system takes this process when memory runs out."""
    # WHY: user code must die before the agent and before frozen copies. It may be refused (a lower score than at
    # start needs a capability on some systems); then the order is the kernel's own.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(score))


def default_signals() -> None:
    """Forget every handler and mask of the process we were forked from."""
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Python ignores these two and turns them into exceptions; the rest is as a new process has it.
    kept = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}
    for number in signal.valid_signals() - kept:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)


def _place(fds: Sequence[int]) -> None:
    # A descriptor that came in may be the place of another: move all away first.
    moved = []
    for fd in fds:
        copy = os.dup(fd)
        while copy < _OUT_OF_THE_WAY:
            copy = os.dup(copy)
        moved.append(copy)
    for target, fd in enumerate(moved):
        os.dup2(fd, target, inheritable=target != CONTROL_FD)


def _enter(cwd: str) -> None:
    try:
        os.chdir(cwd)
    except OSError as error:
        stdio.write_error(f"warren: cannot enter {cwd!r}: {error.strerror}\n")
        os.chdir("/")
