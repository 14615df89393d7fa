"""The nursery: forked from the agent before it reads its first byte, so that kernels and scripts never saw one.

Rules for whoever changes this file:
1. Whoever reads a request becomes what it asks for, and has forked a successor before: nothing from outside is ever in
   the memory of a nursery, and thus in the memory of a later kernel. In a sandbox for a single execution there is no
   successor: what is asked for all the same comes from a nursery that the agent forks then.
2. A successor is a child of the agent's (CLONE_PARENT), as its predecessor is.
3. It runs as the user of the sandbox, who may kill or stop it; the agent sees the first as end of file on its socket.
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
from warren.guest.system import forking
from warren.guest.wire.control import Control
from warren.guest.wire.frames import encode

if TYPE_CHECKING:
    from warren.guest.wire.frames import Header

_ALL_SIGNALS = signal.valid_signals()
_NOTE_BYTES = 4096
_TAKEN = b"\n"
"""What a predecessor says when it has read its request; one that dies before leaves it to its successor."""


def start(workspace: str, *, is_last: bool = False) -> tuple[socket.socket, int]:
    """Fork the nursery; returns the agent's end of its socket, and its pid. Call it before anything is read.

    One that `is_last` becomes what is asked of it first, and leaves no successor.
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
    # Held back until it becomes something else, and then forgotten.
    signal.pthread_sigmask(signal.SIG_SETMASK, _ALL_SIGNALS)
    forking.close_all_but([0, 1, 2, sock.fileno()])
    forking.set_dumpable(False)
    # What is imported never becomes garbage: a collection in a kernel must not write to its pages.
    gc.freeze()
    if is_last:
        _be_born(sock, None, workspace)
    # Nobody has asked yet, but whoever connected will: the first does what it can before its request is there.
    _pass_on(sock, workspace)
    while True:
        _wait_to_be_asked(sock)
        why = _pass_on(sock, workspace)
        if why is not None:
            _refuse(sock, why)


def _wait_to_be_asked(sock: socket.socket) -> None:
    ready = select.poll()
    ready.register(sock, select.POLLIN)
    ready.poll()
    if not sock.recv(1, socket.MSG_PEEK):
        os._exit(0)


def _pass_on(sock: socket.socket, workspace: str) -> str | None:
    """Fork a successor, and become what the request asks for. Returns in the successor, and when there is none: why."""
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
            _be_born(sock, write, workspace)
        finally:
            os._exit(1)
    os.close(write)
    # One write, and the end of file only when the predecessor has died before it.
    said = os.read(read, _NOTE_BYTES)
    os.close(read)
    if said:
        note = said.removeprefix(_TAKEN).decode("utf-8", "replace")
        _send(sock, _spawned(predecessor, os.getpid(), note))
    return None


def _refuse(sock: socket.socket, why: str) -> None:
    """Take the request off the socket and say that it cannot be granted."""
    # There is no successor who could go on instead, so rule 1 gives way: it is dropped here, and nothing of it is kept.
    control = Control(os.dup(sock.fileno()))
    control.receive()
    control.take_fds(0)
    control.close()
    _send(sock, {"t": "failed", "why": f"no process could be made: {why}"})


def _spawned(pid: int, nursery: int, note: str) -> Header:
    return {"t": "spawned", "pid": pid, "nursery": nursery, **({"note": note} if note else {})}


def _send(sock: socket.socket, header: Header) -> None:
    sock.sendall(b"".join(encode(header)))


def _be_born(sock: socket.socket, write: int | None, workspace: str) -> NoReturn:
    """Read the request and become what it asks for; what does not depend on it is done first.

    `write` leads to the successor, who answers; without one the answer is ours.
    """
    child_setup.prepare()
    control = Control(sock.detach())
    frame = control.receive()
    if frame is None:
        os._exit(0)  # The agent is gone.
    header, payload = frame
    live, *standard = control.take_fds(4)
    env = {str(name): str(value) for name, value in header.get("env", {}).items()}
    cold_because = exec_start.find_reason(env)
    note = f"Started cold: {cold_because}." if cold_because else ""
    # Before the agent knows of us: what it sends from then on is for what we become.
    child_setup.forget_signals()
    if write is None:
        control.send(_spawned(os.getpid(), os.getpid(), note))
    else:
        os.write(write, (_TAKEN + note.encode())[:_NOTE_BYTES])
        os.close(write)
    control.detach()
    cwd = os.path.join(workspace, str(header.get("cwd") or "."))
    if header.get("mode") == "script":
        child_setup.become(env, cwd, [*standard, live])
        manner = script.Manner(*(str(header.get(name, "")) for name in script.Manner._fields))
        script.start(env, payload, [str(word) for word in header.get("argv", [])], manner, cold_because)
    child_setup.become(env, cwd, [*standard, live], forking.KERNEL_OOM_SCORE)
    kernel_main.start(env, cold_because)
