"""`warren mcp`: a model's client starts it, speaks with it over two pipes, and leaves nothing behind when it goes."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import signal
import subprocess
import uuid
from typing import TYPE_CHECKING, Any, Self

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from api.mcp_client import text
from api.served import wait_for
from e2e.forked import Forked
from e2e.serving import DEADLINE_S, PROGRAM, RunningService
from warren.core.images.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from warren.domain.values import Image


@pytest.fixture
def place(tmp_path: Path, images_dir: str, python_image: Image) -> Iterator[RunningService]:
    """A data folder with images, on which nothing runs."""
    assert python_image.name == "python"
    place = RunningService(tmp_path / "data", images_dir, "bare")
    yield place
    place.clear()


def _program(place: RunningService, *arguments: str) -> StdioServerParameters:
    return StdioServerParameters(command=PROGRAM[0], args=[*PROGRAM[1:], "mcp", *arguments], env=place.env)


class Pipes:
    """A client that writes and reads lines, whatever is in them."""

    def __init__(self, place: RunningService, *arguments: str) -> None:
        self.process = Forked(
            ["mcp", *arguments], env=place.env, cwd="/", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._id = 0

    def __enter__(self) -> Self:
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        assert self.ask("initialize", client)["result"]["serverInfo"]["name"] == "warren"
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def send(self, message: object) -> None:
        assert self.process.stdin is not None
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def ask(self, method: str, params: object) -> dict[str, Any]:
        self._id += 1
        self.send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        while (answer := self.receive()).get("id") != self._id:
            pass
        return answer

    def call(self, name: str, **arguments: object) -> str:
        answer = self.ask("tools/call", {"name": name, "arguments": arguments})
        said: str = answer["result"]["content"][0]["text"]
        return said

    def leave(self, number: int | None = None) -> int:
        """Close the pipe, as clients do, or send a signal, and wait for the end."""
        assert self.process.stdin is not None
        if number is None:
            self.process.stdin.close()
        else:
            self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


def test_a_client_starts_it_and_it_leaves_nothing_behind(place: RunningService) -> None:
    async def story() -> None:
        async with Client(_program(place)) as client:
            assert len((await client.list_tools()).tools) == 11
            assert text(await client.call_tool("run_python", {"code": "x = 6 * 7\nopen('f', 'w').write('1')"})) != ""
            assert text(await client.call_tool("run_python", {"code": "print('to stdout'); x"})) == "to stdout\n42"
            (file,) = (await client.list_resources()).resources
            assert getattr((await client.read_resource(file.uri)).contents[0], "text", "") == "1"
            told: list[str | None] = []
            # All processes of this machine are in sight, and another may run the same tests.
            sleep = f"sleep 16180.{uuid.uuid4().int}"

            async def hear(progress: float, total: float | None, message: str | None) -> None:
                assert (progress > 0, total) == (True, None)
                told.append(message)
                scope.cancel()

            with anyio.CancelScope() as scope:
                await client.call_tool("run_bash", {"command": f"echo on; {sleep}"}, progress_callback=hear)
            assert told[0] == "on"
            alive = {"command": f"pgrep -f '[s]{sleep[1:]}' || echo gone"}
            with anyio.fail_after(DEADLINE_S):
                while text(await client.call_tool("run_bash", alive)).split("\n")[0] != "gone":
                    pass

    anyio.run(story)
    assert place.rows() == {}
    assert place.handles() == set()


def test_a_named_session_is_there_again_and_what_a_killed_one_left_is_cleared_away(place: RunningService) -> None:
    with Pipes(place) as client:
        client.call("write_file", path="note", content="lost")
        client.leave(signal.SIGKILL)
    assert len(place.rows()) == 1
    with Pipes(place, "--session", "notes") as client:
        client.call("write_file", path="note", content="kept")
        for nonsense in (b"{", b"\xff\xfe", b"[1, 2]", b"[" * 10_000, b'"text"', b"x" * (17 << 20), b"{}"):
            client.send(nonsense)
        assert client.call("run_python", code="import os; os.system('echo unheard >&2'); 2 + 2").startswith("4")
        assert "error" in client.ask("no/such", {})
        assert client.leave(signal.SIGTERM) == 128 + signal.SIGTERM
        assert client.process.stdout is not None
        assert client.process.stdout.read() == b""
    with Pipes(place, "--session", "notes") as client:
        assert client.call("read_file", path="note") == "kept"
        assert client.leave() == 0
    (kept,) = place.rows().values()
    assert kept.session_key == "mcp/notes"


def test_of_two_clients_the_second_goes_on_when_the_first_leaves(place: RunningService) -> None:
    with Pipes(place) as first, Pipes(place) as second:
        assert first.call("run_python", code="x = 1; x") == "1"
        assert second.call("run_python", code="x = 2; x") == "2"
        assert first.leave() == 0
        assert second.call("run_python", code="x") == "2"
        assert second.leave() == 0
    assert place.rows() == {}


def test_a_service_that_runs_is_used_also_once_it_was_killed_and_started_again(place: RunningService) -> None:
    place.start()
    with Pipes(place) as client:
        assert client.call("run_python", code="x = 1; x") == "1"
        place.restart()
        assert client.call("run_python", code="x") == "1"
        assert client.leave() == 0
    with place.client() as http:
        assert http.get("/sandboxes").json()["items"] == []
    url = f"http://127.0.0.1:{place.port}"
    with Pipes(place, "--url", url, "--api-key", place.key) as client:
        assert client.call("run_python", code="3 * 3") == "9"
        place.stop()
        assert "no service answers" in client.call("run_python", code="1")
        assert client.leave() == 0
    assert not os.path.exists(place.folder / "warren.sock")


def test_a_build_that_a_client_began_goes_on_when_the_client_is_killed(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text("name = 'tiny'\npackages = []\n")
    data, lock = tmp_path / "data", tmp_path / "data" / "images" / ".lock"
    lock.parent.mkdir(parents=True)
    names = {"DATA_DIR": data, "IMAGE": "tiny", "IMAGE_DIRS": tmp_path, "ENGINE": "bare", "ALLOW_BARE": "true"}
    env = {"PATH": os.defpath, "HOME": str(tmp_path)} | {f"WARREN_{name}": str(value) for name, value in names.items()}
    with lock.open("w") as held:
        # So that the build waits until the client is gone.
        fcntl.flock(held, fcntl.LOCK_EX)
        null = subprocess.DEVNULL
        with subprocess.Popen(
            [*PROGRAM, "mcp"], env=env, cwd="/", stdin=subprocess.PIPE, stdout=null, stderr=null
        ) as client:
            wait_for(lambda: _users(lock) - {os.getpid()})
            client.kill()

    catalog = Catalog(str(data), [str(tmp_path)])
    wait_for(lambda: catalog.status("tiny").built)
    wait_for(lambda: not _users(lock))


def _users(path: Path) -> set[int]:
    """Return the processes that have a file open."""
    found = set()
    for link in glob.glob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link) == str(path):
                found.add(int(link.split("/")[2]))
    return found
