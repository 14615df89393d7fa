"""Kernels: each runs one cell at a time; when one dies its newest checkpoint takes over.

A kernel is one of: absent (no process), starting (requested, not up), idle, busy, waking (a checkpoint takes over).
Facts come from the operating system: the wait status tells that a kernel has ended, and how.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.guest.kernels.cells import CellRun
from warren.guest.kernels.checkpoints import Protection
from warren.guest.kernels.process import Exit, KernelProcess
from warren.guest.kernels.socket import KernelSocket
from warren.guest.system import processes
from warren.guest.wire import claims
from warren.guest.wire.frames import Header, ProtocolError
from warren.guest.wire.parameters import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.agent import Agent
    from warren.guest.executions.execution import Execution
    from warren.guest.kernels.checkpoints import Checkpoint, Forked
    from warren.guest.system.loop import Timer

    Settled = Callable[[str | None], None]
    """Called with None on success, else with the reason."""

MAX_WAITING = 16
MAX_KERNELS = 16
UP_DEADLINE_S = 60.0
WAKE_DEADLINE_S = 5.0
DEAF_S = 0.01
"""First pause between attempts to interrupt a cell that its kernel has not begun yet; a program may ignore SIGINT."""
MAX_DEAF_S = 1.0


@dataclass(frozen=True, slots=True)
class News:
    """What happened to a kernel between two cells; the next result reports it."""

    note: str | None = None
    state: str | None = None
    cells_back: int = 0


class Kernel:
    """One live interpreter, its waiting cells and its checkpoints."""

    def __init__(self, agent: Agent, name: str) -> None:
        self._agent = agent
        self.name = name
        self.state = "absent"
        self.executed = 0
        """The number of cells whose effects its variables hold."""
        self._protection = Protection(agent)
        self._queue: deque[CellRun] = deque()
        self._current: CellRun | None = None
        self._live: KernelProcess | None = None
        self._deaf: Timer | None = None
        """The next attempt to interrupt a cell."""
        self._up_waiters: list[Settled] = []
        self._news = News()
        self._death: tuple[Exit, str] | None = None
        """How the live process ended, and in which state, until another has taken over."""
        self._waking_cell = 0
        self._requested = False
        """Whether the agent ends its process on request."""
        self._deleted = False

    def describe(self) -> dict[str, Any]:
        """Describe it for `kernels`."""
        return {
            "name": self.name,
            "state": "idle" if self.state in ("idle", "absent") and not self._queue else "busy",
            "executed": self.executed,
            "checkpoints": len(self._protection.checkpoints),
            "protected": self._protection.covers(self.executed),
            "private_bytes": self._protection.private_bytes,
        }

    def submit(self, execution: Execution) -> CellRun:
        """Run a cell after those before it. Raises Refused."""
        # Until the kernel is up, the cell that will run first is in the queue too.
        if len(self._queue) >= MAX_WAITING + (self._current is None):
            raise Refused("conflict", f"{MAX_WAITING} cells wait for kernel {self.name} already")
        run = CellRun(self._agent, execution, self)
        self._queue.append(run)
        self._next()
        return run

    def start(self, settled: Settled | None = None) -> None:
        """Start its process if there is none; `settled` is called once it is up, or has failed."""
        if settled is not None:
            self._up_waiters.append(settled)
        if self.state != "absent":
            return
        self.state = "starting"
        try:
            ours, theirs = socket.socketpair()
            fds = [theirs.detach(), *(os.dup(self._agent.null_fd) for _ in range(3))]
        except OSError as error:
            self._failed(f"No kernel could be started: {error.strerror}.")
            return
        asked = time.monotonic()
        header = {"mode": "kernel", "env": self._agent.env, "cwd": self._agent.boot.workspace, "argv": []}

        def spawned(pid: int | None, note: str | None) -> None:
            if pid is None:
                ours.close()
                self._failed(f"No kernel could be started: {note}.")
                return
            if note is not None:
                self._news = News(note)
            self._adopt(pid, KernelSocket(self._agent.loop, ours), asked, UP_DEADLINE_S)

        self._agent.forkserver.spawn(header, b"", fds, spawned)

    def send(self, header: Header, payload: bytes = b"", fds: list[int] | None = None) -> None:
        """Send a frame to the live kernel."""
        assert self._live is not None
        try:
            self._live.socket.send(header, payload, fds or [])
        except ValueError:
            # Only an environment that just fits a header gets here: the cell would wait for ever.
            self._break("the environment is too large")

    def interrupt(self, run: CellRun, again_s: float = DEAF_S) -> None:
        """Interrupt a running cell, as soon as its kernel accepts SIGINT; remove a waiting one from the queue."""
        if run is self._current:
            if self._live is not None and self.state == "busy" and not self._live.interrupt():
                if self._deaf is not None:
                    self._deaf.cancel()
                later_s = min(2 * again_s, MAX_DEAF_S)
                self._deaf = self._agent.loop.call_later(again_s, lambda: self.interrupt(run, later_s))
        elif run in self._queue:
            self._queue.remove(run)
            run.never_ran()
            self._next()

    def kill(self, run: CellRun) -> None:
        """Kill the process that runs a cell; remove a waiting one from the queue."""
        if run is self._current:
            if self.state == "busy":
                self._end_live()
        elif run in self._queue:
            self._queue.remove(run)
            run.never_ran()
            self._next()

    def restart(self, settled: Settled) -> None:
        """Restart it with no variables."""
        self._protection.drop_all()
        self._news = News()
        if self.state in ("absent", "starting"):
            self.executed = 0
            self.start(settled)
            return
        self._up_waiters.append(settled)
        self._end_on_request()

    def rollback(self, cells: int, settled: Settled) -> None:
        """Undo the last cells. Raises Refused."""
        if not self._is_free():
            raise Refused("conflict", f"kernel {self.name} is not idle: wait for its cell, or interrupt it")
        target, protection = self.executed - cells, self._protection
        if not protection.has(target, cells):
            why = f" ({protection.why})" if protection.why else ""
            raise Refused("conflict", f"kernel {self.name} has no checkpoint from {cells} cells ago{why}")
        protection.checkpoints.drop_after(target)
        protection.expect_nothing()
        self._up_waiters.append(settled)
        self.executed = target
        self._end_on_request()

    def fork(self, settled: Forked) -> None:
        """Request a copy that becomes another kernel; `settled` gets it, or None and the reason. Raises Refused."""
        if not self._is_free():
            raise Refused("conflict", f"kernel {self.name} is busy or was never used: only an idle one can be forked")
        self.send(self._protection.ask_for_fork(settled))

    def become(self, copy: Checkpoint, settled: Settled) -> None:
        """Start as a copy of another kernel."""
        self.executed = copy.cell
        self._up_waiters.append(settled)
        self._wake(copy)

    def delete(self) -> None:
        """End it and all cells that wait for it."""
        self._deleted = True
        self._protection.drop_all()
        queue, self._queue = self._queue, deque()
        for run in queue:
            run.deadline.asked = "restarted"
            run.never_ran()
        self._end_on_request()

    def take_news(self) -> News:
        """Return, once, the news since the last result."""
        news, self._news = self._news, News()
        return news

    def _is_free(self) -> bool:
        return self.state == "idle" and not self._queue and self._live is not None and not self._live.ending

    def _next(self) -> None:
        if self._deleted or not self._queue:
            return
        if self._current is None:
            # The start of its kernel counts too: the service waits no longer than the timeout and the grace.
            self._queue[0].deadline.start_timeout()
        if self.state == "absent":
            self.start()
        elif self.state == "idle":
            assert self._live is not None
            # It was killed while idle or as its cell ended: the cell waits for its successor.
            if self._live.ending or self._live.has_ended():
                return
            self.state = "busy"
            run = self._current = self._queue.popleft()
            try:
                run.start(self._live.clock, self._protection.limit_bytes)
            except OSError as error:
                self._current = None
                self.state = "idle"
                run.never_ran(f"The cell could not be started: {error.strerror}.")
                self._next()

    def _adopt(self, pid: int, link: KernelSocket, since: float | None, deadline_s: float) -> None:
        self._live = KernelProcess(
            self._agent,
            pid,
            link,
            since=since,
            deadline_s=deadline_s,
            on_frame=self._claimed,
            on_broken=self._break,
            on_exit=self._exited,
        )
        if self._deleted:
            self._end_live()

    def _claimed(self, header: Header, payload: bytes) -> None:
        kind = header["t"]
        if kind == "up":
            self._up()
            return
        about = claims.check_exec(header)
        run = self._current if self._current is not None and self._current.execution.id == about else None
        if kind == "display":
            what = claims.check_display(header, payload)
            if run is not None:
                run.display(what, payload)
        elif kind == "done":
            claim = claims.check_done(header)
            if run is not None:
                self._done(run, *claim)
        elif kind == "frozen":
            assert self._live is not None
            pid, private_bytes = claims.check_frozen(header)
            self._protection.arrived(about, pid, self._live.socket.take_fd(), private_bytes, self.executed)
        elif kind == "unprotected":
            self._protection.refused(about, claims.check_why(header))
        else:
            raise ProtocolError("a kernel sent a frame that kernels do not send")

    def _up(self) -> None:
        assert self._live is not None
        # Killed just before it came up, because it was late or is not wanted any more: ignore it.
        if self.state not in ("starting", "waking") or self._live.ending:
            return
        self._live.is_up()
        woken = self.state == "waking"
        self.state = "idle"
        if woken:
            cells_back, self.executed = self.executed - self._waking_cell, self._waking_cell
            self._settle_death("rolled_back", cells_back)
        self._settle(None)
        if woken and self._protection.limit_bytes:
            self.send(self._protection.ask_for_checkpoint(self.executed))
        self._next()

    def _done(self, run: CellRun, status: str, exit_code: int, error: dict[str, str] | None) -> None:
        assert self._live is not None
        self._protection.note(run, self.executed)
        self._current = None
        self.state = "idle"
        self.executed += 1
        if not self._requested:
            # A kernel that restarts or is deleted keeps nothing.
            self._protection.expect(run.execution.id, self.executed)
        run.done(self._live.clock, status, exit_code, error)
        self._next()

    def _break(self, why: str) -> None:
        if self._current is not None:
            self._current.execution.notes.append(f"The kernel's control socket failed: {why}.")
            self._current.deadline.kill("broken")
        else:
            self._end_live()

    def _end_on_request(self) -> None:
        self._requested = True
        if self._current is not None and self._current.deadline.asked is None:
            self._current.deadline.asked = "restarted"
        self._end_live()

    def _end_live(self) -> None:
        if self._live is not None:
            self._live.kill(self._current.execution.id if self._current is not None else None)

    def _exited(self, how: Exit) -> None:
        """End the processes it left running, and let the newest checkpoint take over."""
        assert self._live is not None
        self._live.end_leftovers(
            self._current.execution.id if self._current is not None else None, self._protection.checkpoints.pids
        )
        if self._current is not None:
            self._current.free_memory()
        self._live = None
        self._protection.expect_nothing()
        self._protection.lose_forks("the kernel died")
        if self._death is None:
            # Not the death of a checkpoint that was about to take over.
            if self._current is not None:
                self._protection.note(self._current, self.executed)
            self._death = (how, self.state)
        self._take_over()

    def _take_over(self) -> None:
        copy = None if self._deleted else self._protection.checkpoints.take_newest()
        if copy is not None:
            self._wake(copy)
            return
        # A kernel without a finished cell loses nothing: a new one equals it.
        state, self.executed = "lost" if self.executed else "rolled_back", 0
        self.state = "absent"
        self._settle_death(state, 0)
        if self._deleted:
            self._settle("the kernel was deleted")
        elif self._up_waiters:
            self.start()
        else:
            self._next()

    def _wake(self, copy: Checkpoint) -> None:
        self.state = "waking"
        self._waking_cell = copy.cell
        self._adopt(copy.pid, copy.socket, None, WAKE_DEADLINE_S)
        # User code may have stopped it, with a signal to every process in reach.
        processes.send(copy.pid, signal.SIGCONT)
        self.send({"t": "wake"})

    def _settle_death(self, state: str, cells_back: int) -> None:
        """Report the death of the kernel to the running cell, the waiting one, or the next."""
        death, self._death = self._death, None
        requested, self._requested = self._requested, False
        run, self._current = self._current, None
        if death is None:
            return
        how, during = death
        if run is not None:
            run.died(how.exit_code, how.cpu_ms, "lost" if requested else state, cells_back)
        elif during in ("starting", "waking"):
            self._failed(f"The kernel ended while it started ({how}).")
        elif not requested:
            self._news = _build_news(how, state, cells_back)

    def _failed(self, why: str) -> None:
        """Report to all callers, and to the first waiting cell, that the kernel could not be started."""
        self.state = "absent"
        self._settle(why)
        if self._queue:
            self._queue.popleft().never_ran(why)
        self._next()

    def _settle(self, why: str | None) -> None:
        waiters, self._up_waiters = self._up_waiters, []
        for settled in waiters:
            settled(why)


def _build_news(how: Exit, state: str, cells_back: int) -> News:
    """Build the news about a death between two cells."""
    died = f"The kernel died between calls ({how})"
    if state == "lost":
        return News(f"{died}: its variables are lost.", state)
    if cells_back:
        return News(f"{died}: its variables are as they were {cells_back} cells before.", state, cells_back)
    return News(f"{died}: no variable was lost.")
