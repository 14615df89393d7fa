"""The agent: process 1 of a sandbox. One loop, no threads; it owns everything that runs inside.

Rules for changes to this file:
1. Nothing that a gateway or a program sends may end this process or make it wait.
2. The forkserver is forked before the first byte is read, on the first connection: an unused sandbox has none. A
   process that is made ahead of its sandbox forks it at once.
3. Signals are caught by a function that does nothing, never ignored: an ignored signal stays ignored in every program
   that is started from here.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps it, and makes enumeration members all the time
import _socket
import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

import warren
from warren.guest.executions.execution_table import ExecutionTable
from warren.guest.executions.pipes import Leftovers
from warren.guest.files.changes import Changes
from warren.guest.files.documents import Undo
from warren.guest.interpreter import forkserver, kernel_main
from warren.guest.kernels.forkserver_client import ForkserverClient
from warren.guest.kernels.table import Kernels
from warren.guest.ops import OPERATIONS
from warren.guest.system import forking, landlock, processes
from warren.guest.system.facts import Facts
from warren.guest.system.loop import READ, Loop
from warren.guest.wire.frames import PROTOCOL_VERSION, Header, encode
from warren.guest.wire.parameters import Refused
from warren.guest.wire.streams import Connection, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.executions.execution import Execution
    from warren.guest.executions.run import Run
    from warren.guest.net.tunnel import Listener
    from warren.guest.terminals.terminal import Terminal
    from warren.guest.wire.boot import Boot

MAX_CONNECTIONS = 64
MAX_REPORTS = 100
"""Tracebacks of our own bugs that are written; later ones are dropped."""
_LEFT = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGCHLD),
    *(signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGSYS, 16),
}
"""Not caught: those that cannot be, those with another handler, and faults (16 is SIGSTKFLT)."""
_CAUGHT = tuple(int(number) for number in signal.valid_signals() - _LEFT)


class Agent:
    """All state of one sandbox, and the connections of its gateways."""

    def __init__(self, boot: Boot, running: tuple[socket.socket, int] | None) -> None:
        self.boot = boot
        self.loop = Loop()
        self.env = dict(boot.env)
        """The environment of processes started from now on."""
        self.limits = dict(boot.limits)
        self.workspace_fd = os.open(boot.workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.null_fd = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.facts = Facts(boot.facts, boot.workspace)
        self.changes = Changes(boot.workspace)
        self.undo = Undo()
        self.executions = ExecutionTable()
        self.runs: dict[str, Run] = {}
        """The run of each execution that has not finished."""
        self.leftovers = Leftovers(self.loop)
        self.kernels = Kernels(self)
        self.terminals: dict[str, Terminal] = {}
        self.listeners: dict[str, Listener] = {}
        self.forkserver = ForkserverClient(self.loop, lambda: forkserver.start(boot.workspace), running)
        self._connections: list[Connection] = []
        self._reports = 0
        self._listener = socket.socket(fileno=boot.listener_fd)
        self._listener.setblocking(False)
        self.loop.watch(boot.listener_fd, READ, self._accept)

    def adopt(self, boot: Boot) -> None:
        """Take the id, the environment and the limits of a sandbox; everything else stays as it was made."""
        self.boot = boot
        self.env = dict(boot.env)
        self.limits = dict(boot.limits)

    def finished(self, execution: Execution) -> None:
        """Move an execution that has its result to the finished ones."""
        self.runs.pop(execution.id, None)
        self.executions.finish(execution)

    def end_later(self, execution_id: str) -> None:
        """Search again for processes of an execution that was ended: one in the middle of an exec shows no mark."""
        if self.boot.contained:
            for delay_s in (0.1, 1.0):
                self.loop.call_later(delay_s, lambda: processes.end(None, execution_id, contained=True))

    def run_forever(self) -> NoReturn:
        """Serve. An exception in one callback is logged, and costs that callback only."""
        while True:
            try:
                self.loop.run_once()
            except Exception:
                self._report()

    def _accept(self, _events: int) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            self._connections[0].close()
        self.connect(sock).send(_greeting(self.boot, self.executions.summary(), self.kernels.describe()))

    def connect(self, sock: socket.socket) -> Connection:
        """Serve one gateway connection."""
        connection = Connection(self.loop, sock, self._serve)
        self._connections.append(connection)
        connection.on_close = lambda: self._connections.remove(connection)
        return connection

    def _serve(self, stream: Stream, header: Header, payload: bytes) -> None:
        name: Any = header.get("op")
        operation = OPERATIONS.get(name) if isinstance(name, str) else None
        if operation is None:
            stream.fail("invalid_request", "there is no such operation")
            return
        try:
            operation(self, stream, header, payload)
        except Refused as error:
            stream.fail(error.code, str(error))
        except Exception:
            self._report()
            stream.fail("start_failed", f"the agent could not do {name}")

    def _report(self) -> None:
        self._reports += 1
        if self._reports <= MAX_REPORTS:
            with contextlib.suppress(OSError, ValueError):
                traceback.print_exc(file=sys.stderr)
                sys.stderr.flush()


def main(boot: Boot) -> NoReturn:
    """Become the agent of the sandbox that this process was made for; its imports are loaded."""
    _get_ready(boot)
    first = _await_connection(boot)
    # First: a page that is written before the fork, and again after it, exists twice.
    agent = Agent(boot, _start_forkserver(boot))
    agent.connect(first)
    agent.run_forever()


def main_ahead(unassigned: Boot, wait_for_sandbox: Callable[[], Boot]) -> NoReturn:
    """Become the agent of a future sandbox: all that depends on no sandbox is done before it is assigned to one."""
    _get_ready(unassigned)
    agent = Agent(unassigned, None)
    # Last: a page that is written before the fork, and not after it, exists once for all processes.
    agent.forkserver.start()
    agent.adopt(wait_for_sandbox())
    agent.connect(_await_connection(agent.boot))
    agent.run_forever()


def _get_ready(boot: Boot) -> None:
    kernel_main.prepare()
    for number in _CAUGHT:
        _signal.signal(number, _do_nothing)
    # WHY: user code has the same uid, and must not read this memory or take these descriptors.
    forking.set_dumpable(False)
    if boot.contained:
        landlock.prepare()
    os.chdir(boot.workspace)
    # Objects imported before the fork never become garbage: a collection here must not copy their pages.
    gc.freeze()


def _await_connection(boot: Boot) -> socket.socket:
    """Wait for the first gateway and greet it: the agent sets itself up while the gateway reads the greeting."""
    listening = select.poll()
    listening.register(boot.listener_fd, select.POLLIN)
    listener = _socket.socket(fileno=os.dup(boot.listener_fd))
    while True:
        listening.poll()
        try:
            # Not by `accept`, which makes enumeration members of family and type: 30 pages.
            accepted, _address = listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
            sock = socket.socket(fileno=accepted)
            sock.sendall(b"".join(encode(_greeting(boot, [], []))))
        except OSError:
            continue  # The gateway is gone already.
        listener.close()
        return sock


def _greeting(boot: Boot, executions: list[dict[str, Any]], kernels: list[dict[str, Any]]) -> Header:
    about = {"version": PROTOCOL_VERSION, "sandbox": boot.sandbox_id, "agent": warren.__version__}
    return {"t": "hello", **about, "executions": executions, "kernels": kernels}


def _start_forkserver(boot: Boot) -> tuple[socket.socket, int] | None:
    try:
        return forkserver.start(boot.workspace, is_last=boot.single_use)
    except OSError:
        return None  # No process can be made now; the first request tries again.


def _do_nothing(_signal: int, _frame: object) -> None:
    """Catch a signal."""
