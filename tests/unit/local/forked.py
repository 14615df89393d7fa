"""Runs a function in a forked child, where it may give up its rights and change its namespaces for good."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from warren.engines.local.linux import mounts, namespaces, syscalls
from warren.guest.system import forking

if TYPE_CHECKING:
    from collections.abc import Callable

UNPRIVILEGED = 65534
DEADLINE_S = 90


class ChildDied(Exception):
    """The child ended without an answer; `status` is what waitpid said."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the child ended with wait status {status:#x}")
        self.status = status


def run_in_child(function: Callable[[], Any], *, uid: int | None = None) -> Any:
    """Return what `function` returns, by JSON; whatever it raises fails the test with its traceback."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        # A child that hangs must not outlive the test.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(DEADLINE_S)
        try:
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                # A change of uid makes /proc/self root's, which starting as that user does not.
                forking.set_dumpable(True)
            answer = {"value": function()}
        except BaseException:  # noqa: BLE001 - it is reported, and the child must not return into pytest
            answer = {"error": traceback.format_exc()}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(pid, 0)
    if not data:
        raise ChildDied(status)
    answer = json.loads(data)
    if "error" in answer:
        pytest.fail(answer["error"])
    return answer["value"]


def enter_namespaces(flags: int = namespaces.ALL, *, inside_id: int = 0) -> None:
    """Move this process into new namespaces with one id mapped; a new pid namespace starts with the next child."""
    uid = os.geteuid()
    syscalls.unshare(flags)
    namespaces.write_id_maps(os.getpid(), inside_id, uid)
    if flags & namespaces.CLONE_NEWNS:
        mounts.private_root()


def errno_of(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the errno with which a call fails, or 0."""
    try:
        function(*arguments)
    except OSError as exc:
        return exc.errno or -1
    return 0


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: run the tests as root to see this one")
