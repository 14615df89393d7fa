"""Pipes of ended executions: processes that still write to them live on, and their output is discarded."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

from unit.guest.agent_client import until
from warren.guest.executions.pipes import MAX_LEFTOVERS

if TYPE_CHECKING:
    from unit.guest.agent_client import Client, RunningAgent

LATE = """
import os, subprocess
os.mkfifo('door')
os.mkfifo('done')
subprocess.Popen(['sh', '-c', 'read line < door; echo late; echo late >&2; echo wrote > done'])
"""


def pipes_of(agent: RunningAgent) -> list[str]:
    """Find the pipes that the agent has descriptors of; one that is closed meanwhile is left out."""
    found, folder = [], f"/proc/{agent.process.pid}/fd"
    for fd in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"{folder}/{fd}"))
    return [one for one in found if one.startswith("pipe:")]


def are_read(agent: RunningAgent, pids: list[int]) -> list[bool]:
    """Say of which of these processes the agent still reads what they write."""
    pipes = pipes_of(agent)
    return [os.readlink(f"/proc/{pid}/fd/1") in pipes for pid in pids]


def end(agent: RunningAgent, pids: list[int], count: int) -> None:
    """End them, and wait until the agent has no more pipes than so many."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(pipes_of(agent)) <= count)


def test_no_program_loses_its_pipe_to_a_cell_that_leaves_nothing(agent: RunningAgent, client: Client) -> None:
    client.run("import subprocess")
    none = len(pipes_of(agent))
    pids = [int(client.run("sleep 1000 & echo $!", kind="shell")["stdout"]) for _ in range(MAX_LEFTOVERS // 2)]
    all_of_them = len(pipes_of(agent))
    # Its pipes are let go of after the cell, as those of any cell are, but not before we have looked.
    brief = int(client.run("print(subprocess.Popen(['sleep', '1000']).pid)")["stdout"])
    assert all(are_read(agent, [*pids, brief]))
    end(agent, [brief], all_of_them)
    for number in range(20):
        client.run(str(number))

    assert all(are_read(agent, pids))
    end(agent, pids, none)


def test_of_very_many_the_oldest_are_let_go_of(agent: RunningAgent, client: Client) -> None:
    none = len(pipes_of(agent))
    pids = [int(client.run("sleep 1000 & echo $!", kind="shell")["stdout"]) for _ in range(MAX_LEFTOVERS)]

    # Two pipes each, and the newest come on top. They are let go of behind the answer.
    read = [False] * (MAX_LEFTOVERS // 2 - 1) + [True] * (MAX_LEFTOVERS // 2 + 1)
    until(lambda: are_read(agent, pids) == read)
    end(agent, pids, none)


def test_output_after_a_cell_is_discarded_and_its_writer_lives(agent: RunningAgent, client: Client) -> None:
    client.wait(client.start_run(LATE, stream=False, whole=True))
    stream = client.start_run("print(open('done').read())")
    with open(os.path.join(agent.workspace, "door"), "w") as door:
        door.write("\n")
    result = client.wait(stream).result

    assert (result["stdout"], result["stderr"]) == ("wrote\n\n", "")


@pytest.mark.parametrize(
    "code",
    [
        "1",
        "import os; os.close(0)",
        "import os; os.close(1)",
        "import os; os.close(2)",
        "import os\nfor fd in range(3): os.close(fd)",
        "print('x' * 300_000)",
        "import threading; late = threading.Thread(target=print, args=('y' * 300_000,)); late.start()",
        "import subprocess; late = subprocess.Popen(['sh', '-c', 'echo z'])",
        "import os\nif os.fork() == 0: os._exit(0)",
        "import sys; sys.stdin.read(1)",
    ],
)
def test_cells_of_all_kinds_leave_no_descriptor_behind(agent: RunningAgent, client: Client, code: str) -> None:
    client.run("late = None")
    before = len(pipes_of(agent))
    for number in range(10):
        stream = client.start_run(code, stdin=True, paced=number % 2 == 0)
        client.send({"t": "data", "id": stream}, b"some input")
        client.wait(stream)
    # A thread prints into whichever cell there is.
    client.run("if hasattr(late, 'join'): late.join()")

    assert client.run("print('mine')")["stdout"] == "mine\n"
    until(lambda: len(pipes_of(agent)) <= before)
