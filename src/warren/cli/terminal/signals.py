"""Signals of a command: the program inside gets them first, and the sandbox is destroyed in any case."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import anyio

from warren.cli.errors import EXIT_INTERRUPTED

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
        self.target: tuple[AgentClient | RemoteExecution, str] | None = None
        self.exit_code = EXIT_INTERRUPTED

    async def watch(self) -> None:
        """Wait for signals until cancelled."""
        if sys.platform == "win32":
            # A loop takes no signals there; Ctrl-C ends the command as it does any Python.
            return
        interrupted = False
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
            async for number in received:
                if self.target is None:
                    self.exit_code = 128 + number
                    self._scope.cancel()
                    return
                place, exec_id = self.target
                if number == signal.SIGINT and not interrupted:
                    interrupted = True
                    await place.interrupt(exec_id)
                else:
                    await place.kill(exec_id)
                    await anyio.sleep(_REST_S)
                    if self.target is not None:
                        self.exit_code = 128 + number
                        self._scope.cancel()
                        return


async def run_with_signals(work: Callable[[Signals], Awaitable[int]]) -> int:
    """Run a command's work to its end, or until a signal ends it; either way its blocks are left in order."""
    async with anyio.create_task_group() as group:
        signals = Signals(group.cancel_scope)
        group.start_soon(signals.watch)
        code = await work(signals)
        group.cancel_scope.cancel()
        return code
    return signals.exit_code
