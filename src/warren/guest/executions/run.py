"""Run: the common part of cells and processes: output, clocks, facts before and after, the result."""

from __future__ import annotations

import functools
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warren.guest.executions.cause import Ending, Explanation, find_cause
from warren.guest.executions.pipes import Pipes
from warren.guest.system import processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.agent import Agent
    from warren.guest.executions.execution import Execution
    from warren.guest.system.facts import Counts
    from warren.guest.system.loop import Loop, Timer
    from warren.guest.wire.run_request import RunRequest

_WELL = Explanation("exited")


class Deadline:
    """The timeouts of one execution, and which of them ended it.

    It is interrupted first, so that variables survive, and killed after a grace.
    """

    __slots__ = ("_idle", "_interrupt", "_kill", "_last", "_loop", "_request", "_timers", "asked", "interrupted")

    def __init__(
        self, loop: Loop, request: RunRequest, interrupt: Callable[[], None], kill: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._request = request
        self._interrupt = interrupt
        self._kill = kill
        self._timers: list[Timer] = []
        self._idle: Timer | None = None
        self._last = 0.0
        self.asked: str | None = None
        """Why the agent ended it, if it did: timeout, idle, output, killed, restarted or broken."""
        self.interrupted = False

    def start(self) -> None:
        """Start the clocks."""
        self.start_timeout()
        if self._request.idle_timeout_s is not None:
            self._last = time.monotonic()
            self._idle = self._loop.call_later(self._request.idle_timeout_s, self._check_idle)

    def start_timeout(self) -> None:
        """Start the clock of the timeout, unless it runs already."""
        if self._request.timeout_s is not None and not self._timers:
            self._timers.append(self._loop.call_later(self._request.timeout_s, lambda: self.end("timeout")))

    def touch(self) -> None:
        """Restart the idle clock: it wrote something."""
        if self._idle is not None:
            self._last = time.monotonic()

    def end(self, why: str) -> None:
        """Interrupt it now, and kill it if it has not ended after the grace; without a grace, kill it now."""
        if self.asked is None:
            self.asked = why
            if self._request.grace_s == 0:
                self._kill()
                return
            self._timers.append(self._loop.call_later(self._request.grace_s, self._kill))
            self._interrupt()

    def interrupt(self) -> None:
        """Interrupt it on request; the program may go on."""
        self.interrupted = True
        self._interrupt()

    def kill(self, why: str = "killed") -> None:
        """Kill it at once."""
        if self.asked is None:
            self.asked = why
        self._kill()

    def cancel(self) -> None:
        """Stop the clocks."""
        for timer in self._timers:
            timer.cancel()
        if self._idle is not None:
            self._idle.cancel()

    def _check_idle(self) -> None:
        limit = self._request.idle_timeout_s or 0.0
        left = self._last + limit - time.monotonic()
        if left <= 0:
            self.end("idle")
        else:
            self._idle = self._loop.call_later(left, self._check_idle)


class Run:
    """One running execution. Subclasses start, interrupt and kill it, and detect its end."""

    def __init__(self, agent: Agent, execution: Execution) -> None:
        self.agent = agent
        self.execution = execution
        self.request = execution.request
        self.deadline = Deadline(agent.loop, self.request, self.send_interrupt, self.send_kill)
        self.pipes: Pipes | None = None
        self._written = 0
        self.started = time.monotonic()
        self._before: Counts | None = None

    def send_interrupt(self) -> None:
        """Ask the program to stop."""
        raise NotImplementedError

    def send_kill(self) -> None:
        """Kill the program and all that it started."""
        raise NotImplementedError

    def open_pipes(self) -> Pipes:
        """Open its pipes; data written to them becomes its output."""
        execution = self.execution
        self.pipes = Pipes(self.agent.loop, execution.stdin, self.agent.null_fd, self.write, execution.may_read)
        return self.pipes

    def begin(self) -> None:
        """Start the clocks: the program runs from now on."""
        self._before = self.agent.facts.counts()
        self.agent.changes.begin()
        self.started = time.monotonic()
        self.deadline.start()

    def write(self, kind: str, data: bytes) -> None:
        """Record output; past the bound the program is ended, and further output is only counted."""
        self._written += len(data)
        self.deadline.touch()
        if self._written > self.request.output_max_bytes:
            room = self.request.output_max_bytes - (self._written - len(data))
            data = data[: max(0, room)]
            self.deadline.end("output")
        if data:
            self.execution.write(kind, data)

    def free_memory(self) -> None:
        """After an out-of-memory kill, free memory that outlives programs, before anything else is started."""
        if self.agent.boot.contained and self.memory_ran_out and processes.drop_orphan_memory():
            self.execution.notes.append("System V shared memory that no process used any more was removed.")

    @property
    def memory_ran_out(self) -> bool:
        """Whether the kernel has killed a process of the sandbox for memory since this execution began."""
        before = self._before
        return before is not None and _rose(before.oom_kills, self.agent.facts.counts().oom_kills)

    def conclude(self, ending: Ending, cpu_ms: float, **more: Any) -> None:
        """Send the result. The pipes have been read, and the process has ended or the cell is done."""
        self.deadline.cancel()
        duration_ms = (time.monotonic() - self.started) * 1000
        # Most end well, and need no explanation.
        found = _WELL if self._ended_well(ending) else find_cause(self._complete(ending, duration_ms))
        changed, complete = self.agent.changes.scan() if self.request.scan_changes else ([], True)
        self.execution.finish(
            {
                "exit_code": ending.exit_code,
                "cause": found.cause,
                "limit": found.limit,
                "peak": found.peak,
                "state": ending.state,
                "cells_back": ending.cells_back,
                "protected": True,
                "why_unprotected": None,
                "error": ending.error,
                "files_changed": changed,
                "files_changed_complete": complete,
                "duration_ms": round(duration_ms, 3),
                # Below zero when the process ends between its last frame and the reading of its clock.
                "cpu_ms": round(max(0.0, cpu_ms), 3),
                "hint": found.hint,
                **more,
            }
        )
        self.agent.finished(self.execution)
        if self.pipes is not None:
            # After the answer is sent: meanwhile the program closes its ends.
            self.agent.loop.call_soon(functools.partial(self.pipes.let_go, self.agent.leftovers))

    def _ended_well(self, ending: Ending) -> bool:
        return (
            ending.exit_code == 0
            and self.deadline.asked is None
            and not self.deadline.interrupted
            and not (ending.died and self.request.kind == "cell")
            and ending.status not in ("error", "interrupted")
        )

    def _complete(self, ending: Ending, duration_ms: float) -> Ending:
        """Add what the agent requested, measured and counted."""
        return replace(
            ending,
            kind=self.request.kind,
            asked=self.deadline.asked,
            interrupted=self.deadline.interrupted,
            timeout_ms=self._timeout_ms(),
            duration_ms=duration_ms,
            output_max=self.request.output_max_bytes,
            output_total=self._written,
            **(self._facts() if ending.exit_code != 0 else {}),
        )

    def _timeout_ms(self) -> float | None:
        limit_s = self.request.idle_timeout_s if self.deadline.asked == "idle" else self.request.timeout_s
        return None if limit_s is None else limit_s * 1000

    def _facts(self) -> dict[str, Any]:
        """Compare the counters with those at the start; only a failure is worth these system calls."""
        facts = self.agent.facts
        before, after = self._before, facts.counts()
        return {
            "oom_rose": before is not None and _rose(before.oom_kills, after.oom_kills),
            "pids_rose": before is not None and _rose(before.pids_refused, after.pids_refused),
            "disks": facts.disks(),
            "limits": self.agent.limits,
            "memory_peak": facts.read("memory_peak"),
            "pids_now": facts.read("pids_now"),
        }


def _rose(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before
