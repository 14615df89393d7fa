"""The agent: process 1 of a sandbox. One loop, no threads; it owns everything that runs inside.

Rules for whoever changes this file:
1. Nothing that a gateway or a program sends may end this process or make it wait.
2. The nursery is forked before the first byte is read, when somebody has connected: a sandbox that nobody uses does
   without it. Where the process is made ahead of the sandbox that it will be, it is forked then.
3. Signals are caught by a function that does nothing, never ignored: what is ignored stays ignored in every program
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
from warren.guest.system import forking, processes
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
"""Tracebacks of our own mistakes that are written before we fall silent."""
_CAUGHT = tuple(
    int(number)
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGVTALRM,
        signal.SIGPROF,
        signal.SIGXCPU,
        signal.SIGXFSZ,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
        signal.SIGCONT,
        signal.SIGURG,
        signal.SIGWINCH,
        signal.SIGIO,
        signal.SIGPWR,
        *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
    )
)


class Agent:
    """Everything there is in one sandbox, and the connections of the gateways that ask for it."""

    def __init__(self, boot: Boot, running: tuple[socket.socket, int] | None) -> None:
        self.boot = boot
        self.loop = Loop()
        self.env = dict(boot.env)
        """The environment of what is started from now on."""
        self.limits = dict(boot.limits)
        self.workspace_fd = os.open(boot.workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.null_fd = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.facts = Facts(boot.facts, boot.workspace)
        self.changes = Changes(boot.workspace)
        self.undo = Undo()
        self.ledger = ExecutionTable()
        self.runs: dict[str, Run] = {}
        """What runs each execution that has not finished."""
        self.leftovers = Leftovers(self.loop)
        self.kernels = Kernels(self)
        self.terminals: dict[str, Terminal] = {}
        self.listeners: dict[str, Listener] = {}
        self.nursery = ForkserverClient(self.loop, lambda: forkserver.start(boot.workspace), running)
        self._connections: list[Connection] = []
        self._reports = 0
        self._listener = socket.socket(fileno=boot.listener_fd)
        self._listener.setblocking(False)
        self.loop.watch(boot.listener_fd, READ, self._accept)

    def be(self, boot: Boot) -> None:
        """Take on the name, the environment and the limits of a sandbox; everything else is as it was made with."""
        self.boot = boot
        self.env = dict(boot.env)
        self.limits = dict(boot.limits)

    def finished(self, execution: Execution) -> None:
        """Note that an execution has its result."""
        self.runs.pop(execution.id, None)
        self.ledger.finish(execution)

    def end_later(self, execution_id: str) -> None:
        """Look again for processes of an execution that was ended: one in the middle of an exec shows no mark."""
        if self.boot.contained:
            for delay_s in (0.1, 1.0):
                self.loop.call_later(delay_s, lambda: processes.end(None, execution_id, contained=True))

    def run_forever(self) -> NoReturn:
        """Serve. A mistake of ours in one callback is written down, and costs that callback only."""
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
        self.connect(sock).send(_greeting(self.boot, self.ledger.summary(), self.kernels.describe()))

    def connect(self, sock: socket.socket) -> Connection:
        """Serve a gateway on a connection of its own."""
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
    _get_ready(boot.workspace)
    first = _await_connection(boot)
    # Before all that is not needed for it: what was written before the fork, and is written again, is there twice.
    agent = Agent(boot, _start_nursery(boot))
    agent.connect(first)
    agent.run_forever()


def main_ahead(unnamed: Boot, wait_for_name: Callable[[], Boot]) -> NoReturn:
    """Become the agent of a sandbox that there is none of yet: all that needs no name is done before it has one."""
    _get_ready(unnamed.workspace)
    agent = Agent(unnamed, None)
    # Last: what was written before the fork, and is not written again, is there once for all processes.
    agent.nursery.start()
    agent.be(wait_for_name())
    agent.connect(_await_connection(agent.boot))
    agent.run_forever()


def _get_ready(workspace: str) -> None:
    kernel_main.prepare()
    for number in _CAUGHT:
        _signal.signal(number, _do_nothing)
    # WHY: user code has the same uid, and must not read our memory or take our descriptors.
    forking.set_dumpable(False)
    os.chdir(workspace)
    # What was imported before the fork never becomes garbage: a collection here must not copy its pages.
    gc.freeze()


def _await_connection(boot: Boot) -> socket.socket:
    """Wait for the first gateway and greet it: while it takes that in, we set ourselves up."""
    listening = select.poll()
    listening.register(boot.listener_fd, select.POLLIN)
    listener = _socket.socket(fileno=os.dup(boot.listener_fd))
    while True:
        listening.poll()
        try:
            # Not by `accept`, which makes members of enumerations of what the socket is: 30 pages.
            accepted, _address = listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
            sock = socket.socket(fileno=accepted)
            sock.sendall(b"".join(encode(_greeting(boot, [], []))))
        except OSError:
            continue  # It is gone already.
        listener.close()
        return sock


def _greeting(boot: Boot, executions: list[dict[str, Any]], kernels: list[dict[str, Any]]) -> Header:
    about = {"version": PROTOCOL_VERSION, "sandbox": boot.sandbox_id, "agent": warren.__version__}
    return {"t": "hello", **about, "executions": executions, "kernels": kernels}


def _start_nursery(boot: Boot) -> tuple[socket.socket, int] | None:
    try:
        return forkserver.start(boot.workspace, is_last=boot.single_use)
    except OSError:
        return None  # There is no room for a process now; the first request tries again.


def _do_nothing(_signal: int, _frame: object) -> None:
    """Catch a signal."""
