"""The process of a live kernel: its socket, its processor clock, its exit."""

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
"""Between end of file on a control socket and the kill: normally the exit arrives first."""
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Exit:
    """The exit of a process, from its wait status."""

    exit_code: int
    cpu_ms: float

    def __str__(self) -> str:
        return f"exit code {self.exit_code}" if self.exit_code >= 0 else f"signal {-self.exit_code}"


class KernelProcess:
    """A process that runs cells. `on_exit` is called once, after all frames that it sent."""

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
        """Whether it has ended; its last frames may still be unread."""
        self.ending = False
        """Whether it has been killed; its last frames may still be unread."""
        self.pid = pid
        self.socket = link
        self.clock = Clock(pid)
        link.on_frame = on_frame
        link.on_broken = self._ended_socket
        self._timer = agent.loop.call_later(deadline_s, lambda: self.kill(None))
        agent.loop.on_exit(pid, self._exited, since)

    def is_up(self) -> None:
        """Cancel the start deadline."""
        self._timer.cancel()

    def has_ended(self) -> bool:
        """Whether it has ended, also when its exit has not been handled yet."""
        try:
            return self.gone or os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return False

    def interrupt(self) -> bool:
        """Send SIGINT to its group; False when it ignores the signal: a kernel does so until it runs its cell."""
        if not self.gone:
            if processes.ignores(self.pid, signal.SIGINT):
                return False
            processes.send_group(self.pid, signal.SIGINT)
        return True

    def kill(self, execution: str | None) -> None:
        """Kill it and its descendants; its exit triggers the rest."""
        if not self.gone:
            self.ending = True
            # Not by group: a checkpoint just forked may still be in it, unannounced. It is a child of the agent.
            contained = self._agent.boot.contained
            processes.end(self.pid, execution, contained=contained, spare_ours=True)
            processes.send(self.pid, signal.SIGKILL)

    def end_leftovers(self, execution: str | None, spare: Iterable[int]) -> None:
        """Kill the processes it left running, after its exit; `spare` are its checkpoints."""
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
        self._on_exit(Exit(os.waitstatus_to_exitcode(status), (usage.ru_utime + usage.ru_stime) * 1000))


class Clock:
    """Processor time of one process and of the children it has waited for."""

    def __init__(self, pid: int) -> None:
        # The clock of another process: see clock_getcpuclockid(3); Python has no name for it.
        self._clock = (~pid << 3) | 2
        try:
            self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._stat = -1

    def read_ms(self) -> float:
        """Return milliseconds used so far; 0 when the process has ended."""
        try:
            own = time.clock_gettime(self._clock) * 1000
            children = parse_stat(os.pread(self._stat, 1024, 0)).children_ticks if self._stat >= 0 else 0
        except (OSError, ValueError, IndexError):
            return 0.0
        return own + children * _TICK_MS

    def close(self) -> None:
        """Close the descriptor."""
        if self._stat >= 0:
            os.close(self._stat)
            self._stat = -1
