"""Two keepers of one data folder: one that ends, and one that starts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING

import anyio
import pytest
from anyio import lowlevel

from warren.engines import state_files
from warren.engines.local.client import KeeperClient, KeeperGone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_DEADLINE_S = 60
_PROGRAM = """
import asyncio, os, sys
from warren.engines.local.keeper.main import IDLE_S, Keeper
from warren.engines.local.keeper.sandboxes import Sandboxes

said = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND)
def say(what):
    os.write(said, f"{sys.argv[2]} {what}\\n".encode())

sleep = asyncio.sleep
async def rest(seconds):
    if sys.argv[2] == "second" and "second waits" not in open(sys.argv[3]).read():
        say("waits")
    await sleep(seconds)
asyncio.sleep = rest

class Slow(Sandboxes):
    is_busy = False
    async def open(self):
        say("opens")
        if sys.argv[2] == "late":
            sys.stdin.readline()
    def describe(self):
        return {}
    async def create(self, params):
        say("creates")
        return {}
    async def stop_all(self):
        say("stops all")
        await asyncio.to_thread(sys.stdin.readline)
    async def close(self, *, is_displaced=False):
        say("closes displaced" if is_displaced else "closes")
        sys.stdin.read()
        say("has closed")

idle_s = 0.02 if sys.argv[2] == "impatient" else IDLE_S
asyncio.run(Keeper(Slow(sys.argv[1], optional_layers=frozenset()), idle_s).serve(sys.argv[1] + "/keeper.sock"))
"""


def _until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(path)
        return True
    return False


async def _retire(path: str) -> None:
    client = await KeeperClient.connect(path)
    await client.call("retire")
    await client.aclose()


class Folder:
    """A data folder, the keepers that were started for it, and what those said."""

    def __init__(self, folder: Path, started: contextlib.ExitStack) -> None:
        self.socket = str(folder / "keeper.sock")
        self.said = folder / "said"
        self.said.touch()
        self._folder = folder
        self._started = started

    def start(self, name: str, stderr: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _PROGRAM, str(self._folder), name, str(self.said)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
        self._started.enter_context(process)
        self._started.callback(process.kill)
        return process


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with contextlib.ExitStack() as started:
        yield Folder(tmp_path, started)


def test_a_keeper_does_nothing_before_the_one_that_ends_has_ended(folder: Folder) -> None:
    first = folder.start("first")
    _until(lambda: _listens(folder.socket))
    anyio.run(_retire, folder.socket)
    _until(lambda: "first closes" in folder.said.read_text())
    second = folder.start("second")
    _until(lambda: "second" in folder.said.read_text())
    first.communicate(timeout=_DEADLINE_S)
    _until(lambda: _listens(folder.socket))
    anyio.run(_retire, folder.socket)
    second.communicate(timeout=_DEADLINE_S)

    assert folder.said.read_text().splitlines() == [
        *("first opens", "first closes", "second waits", "first has closed"),
        *("second opens", "second closes", "second has closed"),
    ]


def test_a_keeper_leaves_when_another_serves_that_was_started_before(folder: Folder) -> None:
    late = folder.start("late")
    _until(lambda: "late opens" in folder.said.read_text())
    second = folder.start("second")
    _until(lambda: "second" in folder.said.read_text())
    assert late.stdin is not None
    late.stdin.write(b"\n")
    late.stdin.flush()
    told, _ = second.communicate(timeout=_DEADLINE_S)

    assert (second.returncode, json.loads(told)) == (0, {"error": None})
    assert folder.said.read_text().splitlines() == ["late opens", "second waits"]
    anyio.run(_retire, folder.socket)
    late.communicate(timeout=_DEADLINE_S)


def test_an_unused_keeper_ends_by_itself_and_its_log_stays_short(folder: Folder, tmp_path: Path) -> None:
    with open(tmp_path / "log", "a+b") as log:
        log.write(b"before\n" * state_files.MAX_LOG)
        log.flush()
        impatient = folder.start("impatient", log)
        impatient.communicate(timeout=_DEADLINE_S)

    assert impatient.returncode == 0
    assert folder.said.read_text().splitlines()[-1] == "impatient has closed"
    assert not _listens(folder.socket)
    assert 0 < (tmp_path / "log").stat().st_size <= state_files.MAX_LOG


def test_a_retired_keeper_makes_no_sandbox_that_would_outlive_it(folder: Folder) -> None:
    keeper = folder.start("first")
    _until(lambda: _listens(folder.socket))

    async def ask_too_late() -> None:
        client = await KeeperClient.connect(folder.socket)
        keeper.send_signal(signal.SIGTERM)
        await anyio.to_thread.run_sync(_until, lambda: "first stops all" in folder.said.read_text())
        answer = asyncio.create_task(client.call("create"))
        await lowlevel.checkpoint()
        await anyio.to_thread.run_sync(keeper.communicate, b"\n", _DEADLINE_S)
        with pytest.raises(KeeperGone):
            await answer
        await client.aclose()

    asyncio.run(ask_too_late())

    said = ["first opens", "first stops all", "first closes", "first has closed"]
    assert folder.said.read_text().splitlines() == said


def test_a_keeper_whose_folder_was_made_again_leaves_the_socket_of_the_next_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with contextlib.ExitStack() as started:
        data.mkdir()
        first = Folder(data, started)
        ends = first.start("first")
        _until(lambda: _listens(first.socket))
        shutil.rmtree(data)
        data.mkdir()
        second = Folder(data, started)
        serves = second.start("second")
        _until(lambda: _listens(second.socket))
        ends.send_signal(signal.SIGTERM)
        ends.communicate(b"\n", _DEADLINE_S)

        assert _listens(second.socket)
        anyio.run(_retire, second.socket)
        serves.communicate(timeout=_DEADLINE_S)
        assert not _listens(second.socket)
