"""Terminals of a sandbox: list, open, attach to and end them. Each session is audited with its length.

An attached terminal keeps the reaper from its sandbox, typed to or not. A program on a terminal without a session does
not.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from warren.core.executions.request import check_name
from warren.domain.errors import Conflict, Error, InvalidRequest, NotFound, SandboxLost
from warren.domain.lifecycle import Status
from warren.domain.records import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from warren.core.agent.terminals import Terminal, TerminalState
    from warren.core.audit.log import Audit
    from warren.core.sandboxes.live import LiveSandbox
    from warren.core.sandboxes.sandboxes import Sandboxes
    from warren.domain.records import Caller

MAX_SIZE = 1000
MAX_COMMAND = 4096


class Session:
    """One person at a terminal: input and output."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self.name = terminal.name
        self.created = terminal.created
        """Whether the terminal is new."""
        self.scrollback = terminal.scrollback
        """How many of the first bytes were written before."""
        self.typed = 0
        self.shown = 0
        self.exit_code: int | None = None
        """How the program ended, once it has."""

    async def type(self, data: bytes) -> None:
        """Type; waits while the program does not read."""
        self.typed += len(data)
        await self._terminal.send(data)

    async def see(self) -> bytes:
        """Return the next output; empty once the program has ended."""
        data = await self._terminal.receive()
        self.shown += len(data)
        if not data:
            self.exit_code = await self._terminal.exit_code()
        return data

    async def resize(self, cols: int, rows: int) -> None:
        """Tell the program its new size. Raises InvalidRequest."""
        check_size(cols, rows)
        await self._terminal.resize(cols, rows)

    async def hang_up(self) -> None:
        """End the program as a closed window would; `see` then returns its end."""
        await self._terminal.hang_up()


class Terminals:
    """The use cases of terminals."""

    def __init__(self, sandboxes: Sandboxes, audit: Audit) -> None:
        self._sandboxes = sandboxes
        self._audit = audit

    async def list(self, caller: Caller, sandbox_id: str) -> tuple[TerminalState, ...]:
        """Return the terminals. A stopped sandbox has none, and stays stopped."""
        if (await self._sandboxes.get(caller, sandbox_id)).status is Status.STOPPED:
            return ()
        async with self._sandboxes.use(caller, sandbox_id, Scope.READ) as live:
            return await live.agent.terminals()

    @contextlib.asynccontextmanager
    async def attach(
        self,
        caller: Caller,
        sandbox_id: str,
        name: str,
        *,
        command: str | None = None,
        cols: int | None = None,
        rows: int | None = None,
    ) -> AsyncIterator[Session]:
        """Open a terminal, or join the one of that name. Its program runs on after the body.

        Resumes a stopped sandbox. A SandboxLost in the body, because the sandbox ends, leaves as NotFound or Conflict
        with the reason.
        """
        check_name("terminal", name)
        if cols is not None and rows is not None:
            check_size(cols, rows)
        argv = _build_argv(command)
        self._audit.check_writable()
        async with contextlib.AsyncExitStack() as held:
            async with self._noted(caller, "open", sandbox_id, name, command=command) as details:
                live = await held.enter_async_context(self._sandboxes.use(caller, sandbox_id))
                terminal = await live.agent.terminal(name, argv=argv, cols=cols, rows=rows, attach=True)
                held.push_async_callback(terminal.aclose)
                details["created"] = terminal.created
            async with self._attached(caller, live, Session(terminal)) as session:
                yield session

    async def hang_up(self, caller: Caller, sandbox_id: str, name: str) -> None:
        """End the program on a terminal as a closed window would, or kill it if that is not enough. Raises NotFound."""
        check_name("terminal", name)
        self._audit.check_writable()
        async with self._noted(caller, "hang_up", sandbox_id, name), self._sandboxes.use(caller, sandbox_id) as live:
            await live.agent.close_terminal(name)

    @contextlib.asynccontextmanager
    async def _attached(self, caller: Caller, live: LiveSandbox, session: Session) -> AsyncIterator[Session]:
        """Audit the length of the session, and explain an end of the sandbox."""
        begun = time.monotonic()
        async with self._noted(caller, "close", live.id, session.name) as details:
            try:
                yield session
            except SandboxLost as error:
                raise _explain(live, error) from error
            finally:
                details.update(
                    duration_ms=round((time.monotonic() - begun) * 1000),
                    typed_bytes=session.typed,
                    shown_bytes=session.shown,
                    exit_code=session.exit_code,
                )

    def _noted(
        self, caller: Caller, verb: str, sandbox_id: str, name: str, **details: Any
    ) -> AbstractAsyncContextManager[dict[str, Any]]:
        return self._audit.operation(caller, f"terminal.{verb}", sandbox_id=sandbox_id, terminal=name, **details)


def check_size(cols: int, rows: int) -> None:
    """Raise InvalidRequest for a size that no terminal has."""
    if not (1 <= cols <= MAX_SIZE and 1 <= rows <= MAX_SIZE):
        raise InvalidRequest(f"cols and rows must be between 1 and {MAX_SIZE}")


def _build_argv(command: str | None) -> tuple[str, ...]:
    if command is None:
        return ()
    if "\0" in command or not 1 <= len(command) <= MAX_COMMAND:
        raise InvalidRequest(f"command must be 1 to {MAX_COMMAND} characters, none of them NUL")
    return ("bash", "-c", command)


def _explain(live: LiveSandbox, error: SandboxLost) -> Error:
    """Explain why the connection to a sandbox ended."""
    status = live.sandbox.status
    if live.is_gone or status is Status.DESTROYING:
        return NotFound(f"sandbox {live.id} was deleted")
    if status in {Status.STOPPING, Status.STOPPED}:
        why = f": {live.sandbox.reason}" if live.sandbox.reason else ""
        return Conflict(f"sandbox {live.id} was stopped{why}; connecting again starts it")
    return error
