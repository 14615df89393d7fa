"""The live process of a kernel: its socket, its processor clock, its end."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.guest.system import processes
from warren.guest.system.processes import parse_stat

if TYPE_CHECKING:
    import resource
    from collections.abc import Callable, Iterable

    from warren.guest.agent import Agent
    from warren.guest.kernels.socket import KernelSocket
    from warren.guest.wire.frames import Header

CLOSED_GRACE_S = 0.5
"""Between the end of a kernel's control socket and its kill: normally its exit arrives first."""
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended, in the operating system's word."""

    exit_code: int
    cpu_ms: float

    def __str__(self) -> str:
        return f"exit code {self.exit_code}" if self.exit_code >= 0 else f"signal {-self.exit_code}"


class KernelProcess:
    """A process that runs cells. `on_exit` is called once, after all that it said has been handled."""

    def __init__(
        self,
        agent: Agent,
        pid: int,
        link: KernelSocket,
        *,
        since: float | None,
        deadline_s: float,
        on_frame: Callable[[Header, bytes], None],
        on_broken: Callable[[str], None],
        on_exit: Callable[[Exit], None],
    ) -> None:
        self._agent = agent
        self._on_broken = on_broken
        self._on_exit = on_exit
        self.gone = False
        """Whether it has ended; what it said before may still be on its way."""
        self.ending = False
        """Whether it has been killed; what it did before may still be on its way, and it does nothing more."""
        self.pid = pid
        self.socket = link
        self.clock = Clock(pid)
        link.on_frame = on_frame
        link.on_broken = self._ended_socket
        self._timer = agent.loop.call_later(deadline_s, lambda: self.kill(None))
        agent.loop.on_exit(pid, self._exited, since)

    def is_up(self) -> None:
        """Note that it came up in time."""
        self._timer.cancel()

    def has_ended(self) -> bool:
        """Whether it has ended, though the word of that may still be on its way."""
        try:
            return self.gone or os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return False

    def interrupt(self) -> bool:
        """Send SIGINT to its group; False when it would not hear it: a kernel does not until it runs its cell."""
        if not self.gone:
            if processes.ignores(self.pid, signal.SIGINT):
                return False
            processes.send_group(self.pid, signal.SIGINT)
        return True

    def kill(self, execution: str | None) -> None:
        """Kill it and its descendants; what follows, follows from its exit."""
        if not self.gone:
            self.ending = True
            # Not by group: a copy just forked may not have left it yet, nor have told us of itself. It is our child.
            contained = self._agent.boot.contained
            processes.end(self.pid, execution, contained=contained, spare_ours=True)
            processes.send(self.pid, signal.SIGKILL)

    def end_leftovers(self, execution: str | None, spare: Iterable[int]) -> None:
        """Kill what it left running, once it has gone; `spare` are its frozen copies."""
        processes.end(self.pid, execution, contained=self._agent.boot.contained, spare=spare)
        if execution is not None:
            self._agent.end_later(execution)

    def _ended_socket(self, why: str | None) -> None:
        if why is not None:
            self._on_broken(why)
            return
        self._agent.loop.call_later(CLOSED_GRACE_S, lambda: None if self.gone else self._on_broken("it was closed"))

    def _exited(self, status: int, usage: resource.struct_rusage) -> None:
        self.gone = True
        self._timer.cancel()
        self.socket.read_all()
        self.socket.close()
        self.clock.close()
        self._on_exit(Exit(processes.exit_code(status), (usage.ru_utime + usage.ru_stime) * 1000))


class Clock:
    """The processor time of one process and of the children it has waited for."""

    def __init__(self, pid: int) -> None:
        # The clock of another process: see clock_getcpuclockid(3); Python has no name for it.
        self._clock = (~pid << 3) | 2
        try:
            self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._stat = -1

    def read_ms(self) -> float:
        """Return milliseconds used so far; 0 when the process is gone."""
        try:
            own = time.clock_gettime(self._clock) * 1000
            children = parse_stat(os.pread(self._stat, 1024, 0)).children_ticks if self._stat >= 0 else 0
        except (OSError, ValueError, IndexError):
            return 0.0
        return own + children * _TICK_MS

    def close(self) -> None:
        """Let go of the descriptor."""
        if self._stat >= 0:
            os.close(self._stat)
            self._stat = -1
