"""Signals of a command: the program inside gets them first, and the sandbox is destroyed in any case."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import anyio

from warren.cli.errors import EXIT_INTERRUPTED
from warren.cli.quick.standard_streams import write_in_steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from warren.cli.execution.following import RemoteExecution
    from warren.core.agent.client import AgentClient

_REST_S = 2.0
"""How long the last output of a killed program may take: its reader may never read."""


class Signals:
    """Interrupts the execution that is its target, then kills it; while there is none, gives up the whole command."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        self._was_interrupted = False
        self.target: tuple[AgentClient | RemoteExecution, str] | None = None
        self.exit_code: int | None = None
        """Of a command that a signal ended."""

    async def watch(self) -> None:
        """Wait for signals until cancelled; not for those that `nohup` ignores."""
        if sys.platform == "win32":
            # A loop takes no signals there; Ctrl-C ends the command as it does any Python.
            return
        ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        heard = [each for each in ending if signal.getsignal(each) is not signal.SIG_IGN]
        with anyio.open_signal_receiver(*heard) as received:
            async for number in received:
                if self.target is not None and number == signal.SIGINT and not self._was_interrupted:
                    self._was_interrupted = True
                    place, exec_id = self.target
                    await place.interrupt(exec_id)
                    continue
                self.exit_code = 128 + number
                if self.target is not None:
                    place, exec_id = self.target
                    await place.kill(exec_id)
                    await anyio.sleep(_REST_S)
                    if self.target is None:
                        continue
                self._scope.cancel()
                return

    async def write(self, fd: int, data: bytes) -> None:
        """Write output of the target. After an interrupt its reader has a moment: it may never read."""
        for _ in write_in_steps(fd, data):
            while True:
                was_interrupted = self._was_interrupted
                with anyio.move_on_after(_REST_S) as waiting:
                    await anyio.wait_writable(fd)
                if not waiting.cancelled_caught:
                    break
                if was_interrupted:
                    self.exit_code = EXIT_INTERRUPTED
                    self._scope.cancel()


async def run_with_signals(work: Callable[[Signals], Awaitable[int]]) -> int:
    """Run a command's work to its end, or until a signal ends it; either way its blocks are left in order."""
    async with anyio.create_task_group() as group:
        signals = Signals(group.cancel_scope)
        group.start_soon(signals.watch)
        code = await work(signals)
        group.cancel_scope.cancel()
        return code if signals.exit_code is None else signals.exit_code
    return EXIT_INTERRUPTED if signals.exit_code is None else signals.exit_code
