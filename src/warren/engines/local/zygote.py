"""The zygote: a process with everything imported, forked for each sandbox. One for each image.

It runs the image's interpreter and the image's code, so it is not trusted: it lives in a read-only root, in user and
pid namespaces of its own, with host ids of its image alone, under a system-call filter, and it holds nothing of the
keeper's. It never sees a byte from a client or from a sandbox; only the keeper talks to it. Its children do not need
it: a zygote that dies is replaced, and the sandboxes it made run on.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps it, and makes enumeration members all the time
import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

from warren.engines.local.containment import contain, plan
from warren.engines.local.linux import capabilities, fd_passing, namespaces, seccomp
from warren.engines.local.linux.huge_pages import collapse_heap
from warren.guest import agent
from warren.guest.interpreter import child_setup, kernel_main
from warren.guest.packages import search_path
from warren.guest.system import callbacks, forking, reseed
from warren.guest.wire.boot import Boot

if TYPE_CHECKING:
    from collections.abc import Iterable


def main(listener_fd: int, preload: list[str], version: str, environment: dict[str, str]) -> NoReturn:
    """Import everything once, then fork sandboxes for the keeper that is connected."""
    # WHY: rootless, all zygotes have one host uid; one image's code must not read another image's zygote.
    forking.set_dumpable(False)
    listener = socket.socket(fileno=listener_fd)
    ready = _prepare(preload, environment)
    program = seccomp.build_filter()
    capabilities.count()  # Cached, so that no child counts them again.
    # WHY: children are never waited for here; the keeper holds a pidfd of each.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        keeper, _address = listener.accept()
        serving = _Serving(keeper, program)
        with contextlib.suppress(EOFError, OSError):
            fd_passing.send(keeper, {"t": "ready", "version": version, **ready})
            while ready["error"] is None:
                serving.answer_next()
        serving.close()
        if ready["error"] is not None:
            sys.exit(1)


def _prepare(preload: Iterable[str], environment: dict[str, str]) -> dict[str, Any]:
    """Import the modules that the image preloads; returns an error instead of raising."""
    with forking.recording_handlers():
        for name in preload:
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001  (image code raises anything)
                return {"error": f"module {name!r} cannot be imported: {type(error).__name__}: {error}"[:2000]}
        kernel_main.prepare()
    # As most sandboxes will have it: what no sandbox changes is not copied.
    child_setup.set_environment(environment)
    reseed.renew_surroundings(search_path.search_path(environment))
    tasks = forking.task_count()
    if tasks != 1:
        return {"error": f"preloading left {tasks} threads running; only a single-threaded process can be forked"}
    gc.collect()
    gc.freeze()
    return {"error": None, "huge_pages": collapse_heap()}


class _Serving:
    """One keeper's connection. The keeper has moved the zygote into the control group of each sandbox it requests."""

    def __init__(self, keeper: socket.socket, program: bytes) -> None:
        self._keeper = keeper
        self._receiver = fd_passing.Receiver(keeper)
        self._program = program

    def answer_next(self) -> None:
        """Answer the next request. Raises EOFError when the keeper is gone."""
        self._spawn(self._receiver.receive())

    def close(self) -> None:
        """Close the connection."""
        self._receiver.close()

    def _spawn(self, request: dict[str, Any]) -> None:
        boot_fd = self._receiver.take_fd()
        answer = {"sandbox": request["sandbox"]}
        mapped, done_mapping = os.pipe()
        try:
            pid, pidfd = forking.clone(namespaces.ALL)
            if pid == 0:
                _become_sandbox(boot_fd, mapped, self._program)
            try:
                namespaces.write_id_maps(pid, request["inside"], request["outside"])
            except OSError:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                os.close(pidfd)
                raise
            fd_passing.send(self._keeper, {"t": "spawned", **answer, "pid": pid}, [pidfd])
            os.close(pidfd)
        except OSError as error:
            fd_passing.send(self._keeper, {"t": "failed", **answer, "error": f"{type(error).__name__}: {error}"})
        finally:
            for fd in (boot_fd, mapped, done_mapping):
                os.close(fd)


def _become_sandbox(boot_fd: int, mapped: int, program: bytes) -> NoReturn:
    """Contain this process, then become the agent. Never returns: any error ends the process."""
    sock = None
    try:
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        # WHY: 0 to 2 stay open, or received descriptors would get these numbers.
        forking.close_all_but((0, 1, 2, boot_fd, mapped))
        sock = socket.socket(fileno=boot_fd)
        os.setsid()
        os.read(mapped, 1)  # End of file: the ids are mapped.
        os.close(mapped)
        receiver = fd_passing.Receiver(sock)
        descriptors, ahead = _contain(receiver, program)
        callbacks.reopen()
        if ahead:
            unassigned = Boot(sandbox_id="", workspace=plan.WORKSPACE, **descriptors)
            agent.main_ahead(unassigned, lambda: _wait_for_sandbox(sock, receiver, descriptors))
        agent.main(_wait_for_sandbox(sock, receiver, descriptors))
    except BaseException as error:  # noqa: BLE001  (process 1 must not go on half-contained)
        with contextlib.suppress(OSError):
            if sock is not None and sock.fileno() >= 0:
                fd_passing.send(sock, {"t": "error", "message": str(error) or type(error).__name__})
        with contextlib.suppress(OSError):
            traceback.print_exc()
    finally:
        os._exit(1)


def _wait_for_sandbox(sock: socket.socket, receiver: fd_passing.Receiver, descriptors: dict[str, Any]) -> Boot:
    """Report that this process is contained, and wait until the keeper assigns it to a sandbox."""
    fd_passing.send(sock, {"t": "ready"})
    assigned = receiver.receive()
    receiver.close()
    return Boot.from_json({**assigned["boot"], **descriptors})


def _contain(receiver: fd_passing.Receiver, program: bytes) -> tuple[dict[str, Any], bool]:
    """Perform the containment plan; returns the agent's descriptors, and whether this process is made ahead."""
    message = receiver.receive()
    context = contain.Context(filter=program)
    listener = receiver.take_fd()
    facts = {name: receiver.take_fd() for name in message["facts"]}
    if message["mount"]:
        context.mount_fd = receiver.take_fd()
    context.device_fds = tuple(receiver.take_fd() for _ in range(message["devices"]))
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2) if not message["debug"] else (0, 1):
        os.dup2(null, fd)
    os.close(null)
    contain.perform(message["plan"], context)
    return {"listener_fd": listener, "facts": facts}, message["ahead"]
