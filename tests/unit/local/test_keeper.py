"""Two keepers of one data folder, one of which is on its way out."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import anyio

from warren.engines.local.client import KeeperClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_DEADLINE_S = 60
_PROGRAM = """
import asyncio, os, sys
from warren.engines.local.keeper import Keeper
from warren.engines.local.sandboxes import Sandboxes

said = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND)
def say(what):
    os.write(said, f"{sys.argv[2]} {what}\\n".encode())

class Slow(Sandboxes):
    async def open(self):
        say("opens")
    def describe(self):
        return {}
    async def close(self):
        say("closes")
        sys.stdin.read()
        say("has closed")

asyncio.run(Keeper(Slow(sys.argv[1], optional_layers=frozenset())).serve(sys.argv[1] + "/keeper.sock"))
"""


def _until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _waits_for_a_lock(pid: int) -> bool:
    with open("/proc/locks") as file:
        return any(line.split()[1] == "->" and line.split()[5] == str(pid) for line in file)


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(path)
        return True
    return False


async def _retire(path: str) -> None:
    client = await KeeperClient.connect(path)
    await client.call("retire")
    await client.aclose()


def test_a_keeper_does_nothing_before_the_one_that_ends_has_ended(tmp_path: Path) -> None:
    said, path = tmp_path / "said", str(tmp_path / "keeper.sock")
    said.touch()

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _PROGRAM, str(tmp_path), name, str(said)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        started.enter_context(process)
        started.callback(process.kill)
        return process

    with contextlib.ExitStack() as started:
        first = start("first")
        _until(lambda: _listens(path))
        anyio.run(_retire, path)
        _until(lambda: "first closes" in said.read_text())
        second = start("second")
        _until(lambda: _waits_for_a_lock(second.pid) or "second opens" in said.read_text())
        first.communicate(timeout=_DEADLINE_S)
        _until(lambda: _listens(path))
        anyio.run(_retire, path)
        second.communicate(timeout=_DEADLINE_S)

    assert said.read_text().splitlines() == [
        *("first opens", "first closes", "first has closed"),
        *("second opens", "second closes", "second has closed"),
    ]
