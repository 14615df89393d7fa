"""Child setup: turns a fork of the forkserver into a process for user code: session, signals, descriptors, env."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps it, and makes enumeration members all the time
import os
import signal
import sys
from typing import TYPE_CHECKING

from warren.guest.interpreter import stdio
from warren.guest.packages import search_path
from warren.guest.system import forking, landlock, reseed

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTROL_FD = 3
_OUT_OF_THE_WAY = 16
# Python ignores the last two and turns them into exceptions.
_KEPT_SIGNALS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}
_environment: dict[str, str] = {}
"""The environment set last, here or in the process that this is a fork of; no user code has run since."""
_SIGNALS = tuple(int(number) for number in signal.valid_signals() - _KEPT_SIGNALS)


def prepare() -> None:
    """Do the part of `become` that depends on no request, before one arrives. Signals must be blocked."""
    forking.announce_to_imports()
    reseed.renew_randomness()
    for number in _SIGNALS:
        _signal.signal(number, _signal.SIG_DFL)
    stdio.open_outputs()


def forget_signals() -> None:
    """Discard blocked signals: they were sent to a forkserver, not to what this process is from now on."""
    while _signal.sigtimedwait(_SIGNALS, 0) is not None:
        pass


def become(
    env: dict[str, str],
    cwd: str,
    fds: Sequence[int],
    oom_score: int = forking.LIVE_OOM_SCORE,
    *,
    alone: bool = False,
) -> None:
    """Make this fork a process of its own; `fds` become 0, 1, 2 and, if there is a fourth, 3. All others are closed.

    With `alone` it can signal its own descendants only.
    """
    os.setsid()
    # First: the rulesets are among the descriptors that are closed.
    landlock.enter(alone=alone)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    _place(fds)
    forking.close_all_but(range(len(fds)))
    settle(oom_score)
    is_changed = set_environment(env)
    os.umask(0o022)
    sys.argv = [""]
    stdio.attach(range(3))
    _enter(cwd)
    reseed.renew_surroundings(search_path.search_path(env), is_changed=is_changed)


def set_environment(env: dict[str, str]) -> bool:
    """Make `os.environ` equal to `env`, touching only what differs; returns whether anything did."""
    if env == _environment:
        return False
    _environment.clear()
    _environment.update(env)
    gone = os.environ.keys() - env.keys()
    different = [name for name, value in env.items() if os.environ.get(name) != value]
    for name in gone:
        del os.environ[name]
    for name in different:
        os.environ[name] = env[name]
    return bool(gone or different)


def settle(oom_score: int = forking.LIVE_OOM_SCORE) -> None:
    """Set what a fork does not inherit: dumpable, killed with its parent, and its score when memory runs out."""
    forking.set_dumpable(True)
    forking.die_with_parent()
    forking.set_oom_score(oom_score)


def _place(fds: Sequence[int]) -> None:
    # A received descriptor may have the number of a target: move all away first.
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
