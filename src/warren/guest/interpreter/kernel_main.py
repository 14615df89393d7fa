"""A kernel: a live interpreter that runs cells one after another and keeps its variables between them.

The forkserver forks it, or it starts cold by exec (exec_start.py), with its control socket as descriptor 3.
What it sends to the agent is a claim: user code shares this process.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps it, and makes enumeration members all the time
import contextlib
import functools
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from warren.guest.interpreter import checkpoint, child_setup, exec_start, figures, stdio
from warren.guest.interpreter.display import screen
from warren.guest.interpreter.executor import Executor, build_executor
from warren.guest.interpreter.failure import Outcome, conclude
from warren.guest.packages import search_path
from warren.guest.system import forking, reseed
from warren.guest.system.hot_pages import HotPages
from warren.guest.wire.control import Control
from warren.guest.wire.frames import ProtocolError

if TYPE_CHECKING:
    from warren.guest.wire.frames import Header

_SPARE_FDS = 16
_SIGINT = int(signal.SIGINT)


@functools.cache
def prepare() -> Executor:
    """Build, once, what every kernel needs, in the process that they are forked from. Call it after preloading."""
    executor = build_executor()
    figures.install()
    executor.settle()
    sys.meta_path.append(search_path.LateFinder())
    reseed.prepare()
    return executor


def start(env: dict[str, str], exec_reason: str | None) -> NoReturn:
    """Serve after `child_setup.become`: as a fork of the warm imports, or by exec where those are the wrong ones."""
    if exec_reason is not None:
        exec_start.restart(env, "kernel_main", exec_reason, keep_fds=(child_setup.CONTROL_FD,))
    _run(env)


def start_after_exec() -> NoReturn:
    """Serve after an exec: build what a fork would inherit."""
    (why,) = exec_start.take_arguments()
    env = dict(os.environ)
    os.set_inheritable(child_setup.CONTROL_FD, False)
    child_setup.settle(forking.KERNEL_OOM_SCORE)
    stdio.open_outputs()
    prepare()
    reseed.renew_surroundings(search_path.search_path(env))
    _run(env, exec_reason=why)


def _run(env: dict[str, str], exec_reason: str | None = None) -> NoReturn:
    executor = prepare()
    if "MPLBACKEND" in env:
        figures.uninstall(env["MPLBACKEND"])
    try:
        loop = CellLoop(Control(child_setup.CONTROL_FD), executor, os.getcwd())
        loop.serve(exec_reason)
    except (OSError, ProtocolError):
        # The agent is gone, or user code has replaced descriptor 3.
        os._exit(1)
    os._exit(0)


class CellLoop:
    """Runs cells: each arrives with three descriptors, runs, and ends with a `done` claim."""

    def __init__(self, control: Control, executor: Executor, workspace: str) -> None:
        self._control = control
        self._executor = executor
        self._workspace = workspace
        self._pid = os.getpid()
        self._base_bytes = checkpoint.resident_bytes()
        self._on_interrupt: Any = signal.default_int_handler
        self._copying = False
        self._hot_pages = HotPages()
        self._packages = search_path.Watch(os.environ)
        os.register_at_fork(after_in_child=self._forked)

    def serve(self, exec_reason: str | None) -> None:
        """Run cells until end of file."""
        _ignore_interrupts()
        how = {"cold": True, "why": exec_reason} if exec_reason else {}
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
            for fd in fds:
                os.close(fd)
            message = "the kernel has no free descriptor left for input and output: close files, or roll back"
            outcome = Outcome("error", 1, {"name": "OSError", "value": message, "traceback": message})
        else:
            self._hot_pages.begin()
            stdio.attach(fds)
            screen.open(functools.partial(self._display, execution))
            outcome = self._run(header, payload)
            screen.close()
            self._leave_if_forked(outcome.exit_code)
            if news := self._packages.find_news():
                stdio.write_error(f"{news}\n")
            stdio.flush()
        done = {"t": "done", "exec": execution, "status": outcome.status, "error": outcome.error}
        self._control.send({**done, "exit_code": outcome.exit_code})
        # Afterwards: all output of the cell is in its pipes, and the agent does not wait until they are closed.
        stdio.detach()
        if header.get("checkpoint"):
            self._copy(header)

    def _display(self, execution: object, kind: str, data: bytes, is_last: bool) -> None:
        send = self._control.send_with_next if is_last else self._control.send
        send({"t": "display", "exec": execution, "display": kind}, data)

    def _run(self, header: Header, payload: bytes) -> Outcome:
        """Run the cell in its surroundings; no exception of user code leaves this function."""
        outcome, error = Outcome("ok"), None
        try:
            try:
                with _Surroundings(header, self._workspace):
                    _signal.signal(_SIGINT, self._on_interrupt)
                    outcome = self._executor.run(payload.decode("utf-8", "replace"), header.get("echo", "display"))
                    figures.show()
            except BaseException as raised:  # a missing folder, a figure that cannot be drawn
                error = raised
            handler: Any = _signal.signal(_SIGINT, _signal.SIG_IGN)
        except KeyboardInterrupt as late:
            handler, error = _ignore_interrupts(), late
        self._on_interrupt = handler if callable(handler) else signal.default_int_handler
        return conclude(error) if error is not None and outcome.error is None else outcome

    def _copy(self, header: Header) -> None:
        """Make a frozen copy for the agent, or report why not. In the copy, this returns when it takes over."""
        # First: pages written from here on are copied before the checkpoint, and not in the next cell.
        self._hot_pages.observe()
        limit = header.get("checkpoint") or None
        private = max(0, checkpoint.resident_bytes() - self._base_bytes)
        about = {"exec": header.get("exec")}
        wake = None
        self._copying = True
        try:
            why = checkpoint.find_obstacle(private, limit)
            if why is None:
                # A copy without a limit becomes another kernel, and must not draw the same random values.
                wake = checkpoint.freeze(self._control, {**about, "private_bytes": private}, renew=limit is None)
        except OSError as error:
            why = f"the copy could not be made: {error.strerror}"
        finally:
            self._copying = False
        if why is not None:
            self._control.send({**about, "t": "unprotected", "why": why})
        elif wake is None:
            self._hot_pages.touch()
        else:
            self._pid = os.getpid()
            self._control.send({"t": "up", "executor": self._executor.name, "woken": True})

    def _forked(self) -> None:
        """Close the control socket in a child that user code forks: it must not speak for the kernel."""
        if not self._copying and os.getpid() != self._pid:
            self._control.close()

    def _leave_if_forked(self, status: int) -> None:
        """End a child that user code forked and that ran off the end of its cell."""
        if os.getpid() != self._pid:
            stdio.flush()
            os._exit(status)


class _Surroundings:
    """The requested environment and folder, for the time of a cell, and some descriptors reserved from it.

    Not a generator: every line that runs in each cell costs a page copy after each checkpoint.
    """

    __slots__ = ("_before", "_came_from", "_env", "_folder", "_limit", "_went_to")

    def __init__(self, header: Header, workspace: str) -> None:
        cwd = header.get("cwd")
        self._env: dict[str, str] = header.get("env") or {}
        self._folder = os.path.join(workspace, cwd) if cwd else ""
        self._came_from = self._went_to = ""
        self._before: dict[str, str | None] = {}
        self._limit = (0, 0)

    def __enter__(self) -> None:
        if self._folder:
            self._came_from = os.getcwd()
            os.chdir(self._folder)
            self._went_to = os.getcwd()
        for name, value in self._env.items():
            self._before[name] = os.environ.get(name)
            os.environ[name] = value
        # The next cell needs three new descriptors, even if this one uses up the rest.
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        _limit_files(self._limit[0] - _SPARE_FDS, self._limit[1])

    def __exit__(self, *_: object) -> None:
        soft, hard = self._limit
        # User code may have set its own limit.
        if resource.getrlimit(resource.RLIMIT_NOFILE) == (soft - _SPARE_FDS, hard):
            _limit_files(soft, hard)
        for name, value in self._before.items():
            if value is not None:
                os.environ[name] = value
            elif name in os.environ:
                del os.environ[name]
        if self._folder:
            self._leave_folder()

    def _leave_folder(self) -> None:
        with contextlib.suppress(OSError):
            # A cell that changed its folder stays there.
            if os.getcwd() == self._went_to:
                os.chdir(self._came_from)


def _limit_files(soft: int, hard: int) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    except (OSError, ValueError):
        return


def _ignore_interrupts() -> Any:
    while True:
        try:
            return _signal.signal(_SIGINT, _signal.SIG_IGN)
        except KeyboardInterrupt:
            # It arrived before this call: its cell is over.
            continue
