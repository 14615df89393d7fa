"""Kernels that are asked for two things at once, and what a kernel says while it is being killed.

What comes in one piece is handled before anything that happens because of it. A stopped agent finds, when it goes on,
all that was said meanwhile, in the order in which it was.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from unit.guest.agent_client import Client, RunningAgent, until

if TYPE_CHECKING:
    from collections.abc import Iterator

_WAIT = "import os, time\nprint(os.getpid(), flush=True)\nwhile not os.path.exists('go'): time.sleep(0.001)\n"


@pytest.fixture
def client(agent: RunningAgent) -> Iterator[Client]:
    client = agent.connect()
    yield client
    for kernel in client.call("kernels")["kernels"]:
        client.call("kernel.delete", kernel=kernel["name"])
    client.close()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(agent.workspace, "go"))


def _kernel(client: Client, name: str = "main") -> dict[str, Any]:
    return next(one for one in client.call("kernels")["kernels"] if one["name"] == name)


def _settle(client: Client, name: str = "main") -> None:
    until(lambda: bool(_kernel(client, name)["protected"]))


def _children(pid: int) -> set[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return {int(child) for child in file.read().split()}


def _is(state: str, pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == state


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: _is("T", pid))
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _start_waiting(client: Client, code: str, **params: Any) -> tuple[int, int]:
    """Start a cell that waits until it may go; returns its stream and the kernel's process."""
    stream = client.start_run(_WAIT + code, **params)
    reply = client.wait_for(stream, lambda reply: reply.output().endswith(b"\n"))
    return stream, int(reply.output())


def _let_go(agent: RunningAgent, kernel: int) -> None:
    """Let the cell end, and wait until its kernel has said so and made its copy."""
    before = _children(agent.process.pid)
    with open(os.path.join(agent.workspace, "go"), "w"):
        pass
    until(lambda: _children(agent.process.pid) > before and _is("S", kernel))


def test_a_kernel_that_is_deleted_before_it_is_up_is_answered_and_its_name_is_free(client: Client) -> None:
    with client.together():
        first = client.start("kernel.create", kernel="twice")
        deleted = client.start("kernel.delete", kernel="twice")
        second = client.start("kernel.create", kernel="twice")

    assert (client.wait(deleted).end or {})["t"] == "ok"
    assert (client.wait(first).end or {})["code"] == "start_failed"
    assert (client.wait(second).end or {})["t"] == "ok"
    assert client.run("print('is there')", kernel="twice")["stdout"] == "is there\n"


def test_a_fork_that_is_deleted_before_it_is_made_leaves_its_source_alone(client: Client) -> None:
    client.run("x = 1")
    with client.together():
        forked = client.start("kernel.fork", kernel="main", to="copy")
        deleted = client.start("kernel.delete", kernel="copy")
        killed = client.start_run("import os; os._exit(1)")

    assert (client.wait(deleted).end or {})["t"] == "ok"
    assert (client.wait(forked).end or {})["t"] == "err"
    assert client.wait(killed).result["exit_code"] == 1
    assert client.run("print('goes on')")["stdout"] == "goes on\n"


def test_a_cell_that_comes_while_its_kernel_is_rolled_back_or_restarted_runs_afterwards(client: Client) -> None:
    client.run("x = 1")
    _settle(client)
    client.run("x = 2")
    with client.together():
        rolled_back = client.start("kernel.rollback", kernel="main", cells=1)
        again = client.start("kernel.rollback", kernel="main", cells=1)
        fork = client.start("kernel.fork", kernel="main", to="other")
        after = client.start_run("print(x)")

    assert (client.wait(rolled_back).end or {})["t"] == "ok"
    assert [(client.wait(stream).end or {})["code"] for stream in (again, fork)] == ["conflict"] * 2
    result = client.wait(after).result
    assert (result["stdout"], result["cause"], result["state"]) == ("1\n", "exited", "kept")

    with client.together():
        restarted = client.start("kernel.restart", kernel="main")
        after = client.start_run("print('x' in globals())")
    assert (client.wait(restarted).end or {})["t"] == "ok"
    result = client.wait(after).result
    assert (result["stdout"], result["cause"], result["state"]) == ("False\n", "exited", "kept")


def test_a_restart_forgets_what_a_cell_did_that_ends_just_then(agent: RunningAgent, client: Client) -> None:
    stream, kernel = _start_waiting(client, "x = 1")
    with _stopped(agent.process.pid):
        restarted = client.start("kernel.restart", kernel="main")
        _let_go(agent, kernel)

    assert (client.wait(restarted).end or {})["t"] == "ok"
    assert client.wait(stream).end is not None
    assert client.run("print('x' in globals())")["stdout"] == "False\n"


def test_a_cell_is_not_lost_with_the_one_before_it_that_ends_as_it_is_killed(
    agent: RunningAgent, client: Client
) -> None:
    stream, kernel = _start_waiting(client, "x = 1", exec="exe_before")
    behind = client.start_run("print(x)")
    with _stopped(agent.process.pid):
        client.start("kill", exec="exe_before")
        _let_go(agent, kernel)

    assert client.wait(stream).end is not None
    result = client.wait(behind).result
    assert (result["exit_code"], result["cause"], result["stdout"]) == (0, "exited", "1\n")


def test_an_interrupt_that_comes_before_a_kernel_has_taken_up_its_cell_is_not_lost(client: Client) -> None:
    kernel = int(client.run("import os; print(os.getpid())")["stdout"])
    _settle(client)
    with _stopped(kernel):
        stream = client.start_run("while True: pass", exec="exe_early", timeout_ms=20_000)
        client.call("interrupt", exec="exe_early")
        # So long a kernel that others keep from running may well need.
        client.run("sleep 0.2", kind="shell")

    assert client.wait(stream).result["cause"] == "interrupted"


_ENDED = """
import os, socket, types
from warren.guest.kernels.process import KernelProcess
from warren.guest.kernels.socket import KernelSocket
from warren.guest.system.loop import Loop

loop, (ours, theirs) = Loop(), socket.socketpair()
agent, goes_on = types.SimpleNamespace(loop=loop), os.pipe()
pid = os.fork()
if pid == 0:
    os.read(goes_on[0], 1)
    os._exit(0)
ignore = lambda *_: None
kernel = KernelProcess(
    agent, pid, KernelSocket(loop, ours), since=None, deadline_s=60.0, on_frame=ignore, on_broken=ignore, on_exit=ignore
)
before = kernel.has_ended()
os.write(goes_on[1], b"x")
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print(before, kernel.has_ended(), kernel.gone)
while not kernel.gone:
    loop.run_once()
print(kernel.has_ended())
"""


def test_a_kernel_has_ended_before_the_agent_handles_its_exit() -> None:
    # In a process of its own: a loop takes the signals of the process that it is in.
    ran = subprocess.run([sys.executable, "-c", _ENDED], capture_output=True, text=True, timeout=60, check=True)

    assert ran.stdout == "False True False\nTrue\n"
