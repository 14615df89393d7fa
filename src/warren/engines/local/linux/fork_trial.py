"""Fork trial: tries a function in a forked child, so that its changes to the process are discarded."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_DEADLINE_S = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a trial failed: the errno, 0 where there was none, and a sentence."""

    number: int
    text: str


def attempt(act: Callable[[], None]) -> Failure | None:
    """Run `act` in a forked child; returns why it failed, or None."""
    answer = ""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _report(act, writer)
    os.close(writer)
    # One read, not until end of file: a grandchild may still hold the other side.
    select.select([reader], [], [], _DEADLINE_S)
    os.set_blocking(reader, False)
    with contextlib.suppress(BlockingIOError):
        answer = os.read(reader, 4096).decode(errors="replace")
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    number, _, text = answer.partition(" ")
    if number == "ok":
        return None
    if not number.isdigit():
        return Failure(0, f"the attempt ended with {_describe(status)}")
    return Failure(int(number), text)


def _report(act: Callable[[], None], writer: int) -> None:
    """Run `act`, report its result and end the process."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_DEADLINE_S)
    try:
        act()
        answer = "ok"
    except OSError as exc:
        answer = f"{exc.errno or 0} {exc.strerror or exc}"
    except BaseException as exc:  # noqa: BLE001 - it is reported, and the child must not return into the caller
        answer = f"0 {exc}"
    with contextlib.suppress(OSError):
        os.write(writer, answer.encode(errors="replace")[:4000])
    os._exit(0)


def _describe(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
