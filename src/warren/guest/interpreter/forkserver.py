"""The forkserver: forked from the agent before it reads its first byte, so no kernel or script holds outside bytes.

Rules for changes to this file:
1. The process that reads a request becomes what it asks for, and forks a successor first: no outside byte is ever in
   the memory of a forkserver, and thus in the memory of a later kernel. In a sandbox for a single execution there is
   no successor: a second request is served by a forkserver that the agent forks then.
2. A successor is a child of the agent (CLONE_PARENT), as its predecessor is.
3. It runs as the user of the sandbox, which may kill or stop it. The agent sees a kill as end of file on its socket.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING, NoReturn

from warren.guest.interpreter import child_setup, exec_start, kernel_main, script
from warren.guest.system import forking, landlock
from warren.guest.wire.control import Control
from warren.guest.wire.frames import encode

if TYPE_CHECKING:
    from warren.guest.wire.frames import Header

_ALL_SIGNALS = signal.valid_signals()
_NOTE_BYTES = 4096
_TAKEN = b"\n"
"""Written by a predecessor that has read its request; if it dies before, its successor reads the request."""


def start(workspace: str, *, is_last: bool = False) -> tuple[socket.socket, int]:
    """Fork the forkserver; returns the agent's end of its socket, and its pid. Call it before anything is read.

    One that `is_last` becomes the first process that is requested, and leaves no successor.
    """
    kernel_main.prepare()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = forking.fork_child()
    if pid:
        theirs.close()
        return ours, pid
    try:
        _serve(theirs, workspace, is_last=is_last)
    except OSError:
        os._exit(0)  # The agent is gone.
    finally:
        os._exit(1)


def _serve(sock: socket.socket, workspace: str, *, is_last: bool) -> NoReturn:
    signal.set_wakeup_fd(-1)
    # Blocked until it becomes a kernel or script, and then discarded.
    signal.pthread_sigmask(signal.SIG_SETMASK, _ALL_SIGNALS)
    forking.close_all_but([0, 1, 2, sock.fileno(), *landlock.held()])
    forking.set_dumpable(False)
    # Imported objects never become garbage: a collection in a kernel must not write to their pages.
    gc.freeze()
    if is_last:
        _become(sock, None, workspace)
    # A connected gateway will send a request: the first process prepares for it before it arrives.
    _pass_on(sock, workspace)
    while True:
        _wait_for_request(sock)
        why = _pass_on(sock, workspace)
        if why is not None:
            _refuse(sock, why)


def _wait_for_request(sock: socket.socket) -> None:
    ready = select.poll()
    ready.register(sock, select.POLLIN)
    ready.poll()
    if not sock.recv(1, socket.MSG_PEEK):
        os._exit(0)


def _pass_on(sock: socket.socket, workspace: str) -> str | None:
    """Fork a successor, and become what the request asks for. Returns None in the successor, else why it has none."""
    read, write = os.pipe()
    predecessor = os.getpid()
    try:
        successor = forking.fork_sibling()
    except OSError as error:
        os.close(read)
        os.close(write)
        return str(error.strerror)
    if successor:
        os.close(read)
        try:
            _become(sock, write, workspace)
        finally:
            os._exit(1)
    os.close(write)
    # One write; end of file means that the predecessor died before it.
    said = os.read(read, _NOTE_BYTES)
    os.close(read)
    if said:
        note = said.removeprefix(_TAKEN).decode("utf-8", "replace")
        _send(sock, _spawned(predecessor, os.getpid(), note))
    return None


def _refuse(sock: socket.socket, why: str) -> None:
    """Read the request off the socket and answer that it failed."""
    # Without a successor rule 1 gives way: the request is read and dropped here, and nothing of it is kept.
    control = Control(os.dup(sock.fileno()))
    control.receive()
    control.take_fds(0)
    control.close()
    _send(sock, {"t": "failed", "why": f"no process could be made: {why}"})


def _spawned(pid: int, forkserver: int, note: str) -> Header:
    return {"t": "spawned", "pid": pid, "nursery": forkserver, **({"note": note} if note else {})}


def _send(sock: socket.socket, header: Header) -> None:
    sock.sendall(b"".join(encode(header)))


def _become(sock: socket.socket, write: int | None, workspace: str) -> NoReturn:
    """Read the request and become what it asks for; all that does not depend on it is done first.

    `write` leads to the successor, which answers; without a successor this process answers.
    """
    child_setup.prepare()
    control = Control(sock.detach())
    frame = control.receive()
    if frame is None:
        os._exit(0)  # The agent is gone.
    header, payload = frame
    live, *standard = control.take_fds(4)
    env = {str(name): str(value) for name, value in header.get("env", {}).items()}
    exec_reason = exec_start.find_reason(env)
    note = f"Started cold: {exec_reason}." if exec_reason else ""
    # Before the agent knows this pid: its signals from then on are meant for what this process becomes.
    child_setup.forget_signals()
    if write is None:
        control.send(_spawned(os.getpid(), os.getpid(), note))
    else:
        os.write(write, (_TAKEN + note.encode())[:_NOTE_BYTES])
        os.close(write)
    control.detach()
    cwd = os.path.join(workspace, str(header.get("cwd") or "."))
    if header.get("mode") == "script":
        child_setup.become(env, cwd, [*standard, live], alone=bool(header.get("alone")))
        manner = script.Manner(*(str(header.get(name, "")) for name in script.Manner._fields))
        argv = [str(word) for word in header.get("argv", [])]
        script.start(env, payload, argv, manner, is_cold=exec_reason is not None)
    child_setup.become(env, cwd, [*standard, live], forking.KERNEL_OOM_SCORE)
    kernel_main.start(env, exec_reason)
