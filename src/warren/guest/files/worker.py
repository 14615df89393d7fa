"""Workers: long file work in a forked process, so that the loop never waits for a disk, a regex or a large tree.

The agent has one thread, so fork is safe; the child does plain blocking work and writes its result to a pipe. Closing
its stream kills it, and a missing result is an error for the caller.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
from typing import TYPE_CHECKING, Any, NoReturn

from warren.guest.files.paths import refusal
from warren.guest.system.forking import close_all_but, die_with_parent
from warren.guest.system.loop import READ
from warren.guest.wire.frames import MAX_PAYLOAD
from warren.guest.wire.parameters import Refused
from warren.guest.wire.pump import Inflow, Outflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.system.loop import Loop, Timer
    from warren.guest.wire.streams import Stream

DEADLINE_S = 600.0
"""For work without a data stream; work that sends or takes data lasts as long as its stream."""
_MEMORY_BYTES = 512 << 20
"""Memory of a worker on top of the agent's: a hostile archive or regex must not use up the sandbox."""
_MAX_RESULT = MAX_PAYLOAD + (64 << 10)

Result = tuple[dict[str, Any], bytes]
"""The fields and the payload of the `ok` frame."""


class Worker:
    """One forked worker that serves one stream. `work` runs in the child and gets the ends of two pipes."""

    def __init__(
        self,
        loop: Loop,
        stream: Stream,
        work: Callable[[int, int], Result],
        *,
        keep: tuple[int, ...] = (),
        sends: bool = False,
        takes: bool = False,
        deadline_s: float | None = DEADLINE_S,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._loop = loop
        self._stream = stream
        self._on_end = on_end
        self._result = bytearray()
        self._open: set[int] = set()
        self._outflow: Outflow | None = None
        self._inflow: Inflow | None = None
        self._status: int | None = None
        self._late = False
        ours, theirs = self._pipes()
        try:
            self._pid = os.fork()
        except OSError as error:
            for fd in (*ours, *theirs):
                os.close(fd)
            raise Refused("conflict", f"the sandbox cannot start a process now: {error.strerror}") from error
        if self._pid == 0:
            _run_worker(work, theirs, keep)
        for fd in theirs:
            os.close(fd)
        loop.on_exit(self._pid, self._exited)
        self._timer: Timer | None = None if deadline_s is None else loop.call_later(deadline_s, self._too_late)
        stream.on_close = self._cancelled
        self._join(ours, sends=sends, takes=takes)

    def _pipes(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        fds: list[int] = []
        try:
            for _ in range(3):
                fds += os.pipe2(os.O_CLOEXEC)
        except OSError:
            for fd in fds:
                os.close(fd)
            raise
        data_in, to_child, from_child, data_out, result_in, result_out = fds
        os.set_blocking(result_in, False)
        return (to_child, from_child, result_in), (data_in, data_out, result_out)

    def _join(self, ours: tuple[int, int, int], *, sends: bool, takes: bool) -> None:
        to_child, from_child, self._result_fd = ours
        self._open = {self._result_fd}
        if takes:
            self._open.add(to_child)
            self._inflow = Inflow(self._loop, to_child, self._stream, lambda _error: self._close(to_child))
            self._stream.on_data, self._stream.on_eof = self._inflow.write, self._inflow.finish
        else:
            os.close(to_child)
        if sends:
            self._open.add(from_child)
            self._outflow = Outflow(self._loop, from_child, self._stream, lambda _error: self._close(from_child))
        else:
            os.close(from_child)
        self._loop.watch(self._result_fd, READ, self._read_result)

    def _read_result(self, _events: int) -> None:
        data = os.read(self._result_fd, 1 << 20)
        self._result += data
        if not data or len(self._result) > _MAX_RESULT:
            self._close(self._result_fd)

    def _close(self, fd: int) -> None:
        if fd in self._open:
            self._loop.unwatch(fd)
            os.close(fd)
            self._open.discard(fd)
        self._finish()

    def _exited(self, status: int, _usage: object) -> None:
        self._status = status
        if self._timer is not None:
            self._timer.cancel()
        if self._inflow is not None:
            self._inflow.stop()
        self._finish()
        if self._on_end is not None:
            self._on_end()

    def _too_late(self) -> None:
        self._late = True
        self._kill()

    def _cancelled(self) -> None:
        # First: a live worker would take the end of its input for complete input.
        self._kill()
        for flow in (self._outflow, self._inflow):
            if flow is not None:
                flow.stop()
        for fd in list(self._open):
            self._close(fd)

    def _kill(self) -> None:
        # SAFE BECAUSE: the loop reaps, so until `_exited` the number is still this child's.
        if self._status is None:
            os.kill(self._pid, signal.SIGKILL)

    def _finish(self) -> None:
        """Answer, once the child has ended and all its data has been sent."""
        waiting = {self._result_fd} if self._outflow is None else {self._result_fd, self._outflow.fd}
        if self._status is None or waiting & self._open or self._stream.closed:
            return
        for fd in list(self._open):
            os.close(fd)
        self._open.clear()
        head, _, payload = bytes(self._result).partition(b"\n")
        try:
            answer = json.loads(head)
        except ValueError:
            why = "took too long" if self._late else f"was ended by signal {self._status & 0x7F}"
            self._stream.fail("conflict", f"the work {why}; nothing more is known about it")
            return
        if "code" in answer:
            self._stream.fail(answer["code"], answer["message"])
            return
        if self._outflow is not None:
            self._stream.send_eof()
        self._stream.reply(answer, payload)


def _run_worker(work: Callable[[int, int], Result], pipes: tuple[int, int, int], keep: tuple[int, ...]) -> NoReturn:
    source, sink, result = pipes
    try:
        _become_worker((*pipes, *keep))
        answer = _attempt(work, source, sink)
        os.close(sink)
        with open(result, "wb") as out:
            out.write(answer)
    finally:
        os._exit(0)


def _become_worker(keep: tuple[int, ...]) -> None:
    # Objects of the agent own descriptors that are closed here: if collected, they would close the worker's.
    gc.freeze()
    die_with_parent()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    close_all_but((0, 1, 2, *keep))
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/statm", "rb") as statm:
            mapped = int(statm.read().split()[0]) * resource.getpagesize()
        _soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (mapped + _MEMORY_BYTES, hard))


def _attempt(work: Callable[[int, int], Result], source: int, sink: int) -> bytes:
    try:
        body, payload = work(source, sink)
    except Refused as error:
        code, message = error.code, str(error)
    except OSError as error:
        refused = refusal(error, os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ".")
        code, message = refused.code, str(refused)
    except (MemoryError, RecursionError):
        code, message = "too_large", "the work needs more memory than a file operation may use"
    except Exception as error:
        code, message = "start_failed", f"the agent could not do it: {type(error).__name__}: {error}"
    else:
        return json.dumps(body).encode() + b"\n" + payload
    return json.dumps({"code": code, "message": message[:2048]}).encode()


def detach(loop: Loop, work: Callable[[], None], keep: tuple[int, ...], on_end: Callable[[], None]) -> None:
    """Run `work` in a forked process without a result; `on_end` is called also when none can be forked."""
    try:
        pid = os.fork()
    except OSError:
        on_end()
        return
    if pid == 0:
        try:
            _become_worker(keep)
            work()
        finally:
            os._exit(0)
    loop.on_exit(pid, lambda _status, _usage: on_end())
