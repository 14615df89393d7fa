"""A kernel: a live interpreter that runs cells one after another and keeps its variables between them.

It is forked by the nursery, or started cold by exec (cold.py), with its control socket as descriptor 3.
What it tells the agent is a claim: user code shares this process.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import signal
from typing import TYPE_CHECKING, Any, NoReturn

from warren.guest import birth, checkpoint, cold, figures, packages, reseed, stdio
from warren.guest.control import Control
from warren.guest.display import screen
from warren.guest.executor import Executor, build_executor, conclude
from warren.guest.failure import Outcome
from warren.guest.wire import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.guest.wire import Header

_SPARE_FDS = 16


@functools.cache
def prepare() -> Executor:
    """Build, once, what every kernel needs, in the process they will be forked from. Call it after preloading."""
    executor = build_executor()
    figures.install()
    reseed.prepare()
    return executor


def start(env: dict[str, str], cold_because: str | None) -> NoReturn:
    """Serve after `birth.become`: as a fork of the warm imports, or cold when those would be the wrong ones."""
    if cold_because is not None:
        cold.restart(env, "kernel", cold_because, keep_fd=birth.CONTROL_FD)
    _run(env)


def start_cold(why: str) -> NoReturn:
    """Serve after an exec: what a fork inherits is made here."""
    env = dict(os.environ)
    os.set_inheritable(birth.CONTROL_FD, False)
    birth.settle()
    stdio.open_outputs()
    prepare()
    reseed.renew_surroundings(packages.search_path(env))
    _run(env, cold_because=why)


def _run(env: dict[str, str], cold_because: str | None = None) -> NoReturn:
    executor = prepare()
    if "MPLBACKEND" in env:
        figures.uninstall(env["MPLBACKEND"])
    try:
        loop = CellLoop(Control(birth.CONTROL_FD), executor, os.getcwd())
        loop.serve(cold_because)
    except (OSError, ProtocolError):
        # The agent is gone, or user code has put something else in the place of descriptor 3.
        os._exit(1)
    os._exit(0)


class CellLoop:
    """A cell arrives with three descriptors, runs, and is claimed done; then the next."""

    def __init__(self, control: Control, executor: Executor, workspace: str) -> None:
        self._control = control
        self._executor = executor
        self._workspace = workspace
        self._pid = os.getpid()
        self._base_bytes = checkpoint.resident_bytes()
        self._on_interrupt: Any = signal.default_int_handler
        self._copying = False
        os.register_at_fork(after_in_child=self._forked)

    def serve(self, cold_because: str | None) -> None:
        """Run cells until end of file."""
        _ignore_interrupts()
        how = {"cold": True, "why": cold_because} if cold_because else {}
        self._control.send({"t": "up", "executor": self._executor.name, **how})
        while (frame := self._control.receive()) is not None:
            header, payload = frame
            if header["t"] == "cell":
                self._cell(header, payload)
            elif header["t"] == "fork":
                self._copy(header)

    def _cell(self, header: Header, payload: bytes) -> None:
        execution = header.get("exec")
        fds = self._control.take_fds(3)
        if len(fds) < 3:
            message = "the kernel has no free descriptor left for input and output: close files, or roll back"
            outcome = Outcome("error", 1, {"name": "OSError", "value": message, "traceback": message})
        else:
            stdio.attach(fds)
            screen.open(functools.partial(self._display, execution))
            outcome = self._run(header, payload)
            screen.close()
            self._leave_if_forked(outcome.exit_code)
            stdio.detach()
        done = {"t": "done", "exec": execution, "status": outcome.status, "error": outcome.error}
        self._control.send({**done, "exit_code": outcome.exit_code})
        if header.get("checkpoint"):
            self._copy(header)

    def _display(self, execution: object, kind: str, data: bytes, is_last: bool) -> None:
        send = self._control.send_with_next if is_last else self._control.send
        send({"t": "display", "exec": execution, "display": kind}, data)

    def _run(self, header: Header, payload: bytes) -> Outcome:
        """Run the cell in its surroundings; nothing that user code does gets out of here."""
        outcome, error = Outcome("ok"), None
        try:
            try:
                with _surroundings(header, self._workspace), _spare_descriptors():
                    signal.signal(signal.SIGINT, self._on_interrupt)
                    outcome = self._executor.run(payload.decode("utf-8", "replace"), header.get("echo", "display"))
                    figures.show()
            except BaseException as raised:  # a folder that is not there, a figure that cannot be drawn
                error = raised
            handler: Any = signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt as late:
            handler, error = _ignore_interrupts(), late
        self._on_interrupt = handler if callable(handler) else signal.default_int_handler
        return conclude(error) if error is not None and outcome.error is None else outcome

    def _copy(self, header: Header) -> None:
        """Make a frozen copy for the agent, or say why not. In the copy, this returns when it takes over."""
        limit = header.get("checkpoint") or None
        private = max(0, checkpoint.resident_bytes() - self._base_bytes)
        about = {"exec": header.get("exec")}
        wake = None
        self._copying = True
        try:
            why = checkpoint.find_obstacle(private, limit)
            if why is None:
                # One without a limit becomes another kernel, and is not to draw the same random values.
                wake = checkpoint.freeze(self._control, {**about, "private_bytes": private}, renew=limit is None)
        except OSError as error:
            why = f"the copy could not be made: {error.strerror}"
        finally:
            self._copying = False
        if why is not None:
            self._control.send({**about, "t": "unprotected", "why": why})
        elif wake is not None:
            self._pid = os.getpid()
            self._control.send({"t": "up", "executor": self._executor.name, "woken": True})
        elif not self._control.is_waited_for():
            # WHY: each page that the next cell writes to has to be copied now; better while nobody waits.
            stdio.attach(range(3))
            self._executor.warm()

    def _forked(self) -> None:
        """Take the control socket away from a child that user code forks: it must not speak for the kernel."""
        if not self._copying and os.getpid() != self._pid:
            self._control.close()

    def _leave_if_forked(self, status: int) -> None:
        """End a child that user code forked and that ran off the end of its cell."""
        if os.getpid() != self._pid:
            stdio.flush()
            os._exit(status)


@contextlib.contextmanager
def _surroundings(header: Header, workspace: str) -> Iterator[None]:
    """Set the environment and the folder that were asked for, for the time of the cell."""
    env, cwd = header.get("env") or {}, header.get("cwd")
    before = {name: os.environ.get(name) for name in env}
    came_from = os.getcwd() if cwd else ""
    if cwd:
        os.chdir(os.path.join(workspace, cwd))
    went_to = os.getcwd() if cwd else ""
    os.environ.update(env)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        with contextlib.suppress(OSError):
            # A cell that went elsewhere by itself stays there.
            if cwd and os.getcwd() == went_to:
                os.chdir(came_from)


@contextlib.contextmanager
def _spare_descriptors() -> Iterator[None]:
    """Keep some descriptors from user code: the next cell's three arrive as new ones, even if it used up the rest."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = soft - _SPARE_FDS
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowered, hard))
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            now = resource.getrlimit(resource.RLIMIT_NOFILE)
            # User code may have chosen a limit of its own.
            if now == (lowered, hard):
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _ignore_interrupts() -> Any:
    while True:
        try:
            return signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt:
            # One that arrived before this call: the cell it was meant for is over.
            continue
