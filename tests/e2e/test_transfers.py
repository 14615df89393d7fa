"""Large files through a real service process: its memory, its log, and what it does when one side goes away."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.domain.values import Image

MIB = 1 << 20
LARGE = 300 * MIB
GROWTH = 24 * MIB
"""What the service may grow by: windows and buffers of a few connections, and what the first use imports."""
DEADLINE_S = 60.0
CANARY = "canary7c1d"
PROGRAM = (sys.executable, "-c", "from warren.cli.main import main; main()")


class Process:
    """`warren serve` with a data folder of its own, and a user with its first key."""

    def __init__(self, folder: str, images_dir: str) -> None:
        self.folder = folder
        self.log = os.path.join(folder, "log")
        os.symlink(os.path.join(images_dir, "images"), os.path.join(folder, "images"))
        env = {
            "PATH": os.defpath,
            "HOME": folder,
            "WARREN_DATA_DIR": folder,
            "WARREN_ENGINE": "bare",
            "WARREN_ALLOW_BARE": "true",
            "WARREN_IMAGE": "python",
            "WARREN_POOL_SIZE": "0",
        }
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                [*PROGRAM, "serve", "--port", "0"], env=env, cwd=folder, stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        said = ""
        while "Try:" not in said and (line := self._process.stdout.readline()):
            said += line.decode()
        self.url = re.findall(r"http://[\d.]+:\d+", said)[0]
        self.key = re.findall(r"wrn_\S+", said)[0]
        self.client = httpx.Client(
            base_url=f"{self.url}/api/v1",
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=DEADLINE_S,
            trust_env=False,
        )

    def create(self) -> str:
        made = self.client.post("/sandboxes", json={})
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    def peak_bytes(self) -> int:
        """The most memory that it has had."""
        with open(f"/proc/{self._process.pid}/status", encoding="ascii") as status:
            return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read())[0]) << 10

    def outcomes(self, action: str, sandbox_id: str) -> list[str]:
        asked = self.client.get("/audit", params={"action": action, "sandbox_id": sandbox_id})
        return [row["outcome"] for row in asked.json()["items"]]

    def workspace(self, sandbox_id: str) -> str:
        return os.path.join(self.folder, "bare", sandbox_id, "workspace")

    def kill_agent(self, sandbox_id: str) -> None:
        with open(os.path.join(self.folder, "bare", sandbox_id, "record.json"), encoding="utf-8") as record:
            os.kill(json.load(record)["pid"], signal.SIGKILL)

    def connect(self, head: str) -> socket.socket:
        """Open a connection of its own and send the head of a request."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        connection = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
        connection.sendall(f"{head}\r\nHost: {host}\r\nAuthorization: Bearer {self.key}\r\n\r\n".encode())
        return connection

    def stop(self) -> None:
        for sandbox in self.client.get("/sandboxes").json()["items"]:
            self.client.delete(f"/sandboxes/{sandbox['id']}")
        self.client.close()
        self._process.terminate()
        assert self._process.wait(DEADLINE_S) == 0
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def service(images_dir: str, python_image: Image) -> Iterator[Process]:
    assert python_image.name == "python"
    # WHY: the path of a socket has 107 bytes, and pytest's folders are long.
    with tempfile.TemporaryDirectory(prefix="w") as folder:
        process = Process(folder, images_dir)
        yield process
        process.stop()


@pytest.fixture
def sandbox(service: Process) -> str:
    return service.create()


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def zeros(size: int) -> Iterator[bytes]:
    block = bytes(MIB)
    for _ in range(size // MIB):
        yield block


def test_memory_stays_flat_while_large_files_pass(service: Process, sandbox: str) -> None:
    at = f"/sandboxes/{sandbox}"
    service.client.put(f"{at}/files/first", content=zeros(4 * MIB))
    service.client.get(f"{at}/files/first")
    before = service.peak_bytes()

    assert service.client.put(f"{at}/files/large", content=zeros(LARGE)).status_code == 204
    for path, least in ((f"{at}/files/large", LARGE), (f"{at}/archive", LARGE)):
        with service.client.stream("GET", path) as answer:
            assert sum(len(piece) for piece in answer.iter_raw()) >= least
    form = b'--x\r\nContent-Disposition: form-data; name="f"; filename="b"\r\n\r\n'
    posted = service.client.post(
        f"{at}/files",
        content=(piece for part in ((form,), zeros(LARGE), (b"\r\n--x--\r\n",)) for piece in part),
        headers={"Content-Type": "multipart/form-data; boundary=x"},
    )

    assert posted.json()[0]["size"] == LARGE
    assert service.peak_bytes() - before < GROWTH


def test_a_client_that_does_not_read_costs_a_window(service: Process, sandbox: str) -> None:
    service.client.put(f"/sandboxes/{sandbox}/files/large", content=zeros(64 * MIB))
    before = service.peak_bytes()

    with service.connect(f"GET /api/v1/sandboxes/{sandbox}/files/large HTTP/1.1") as connection:
        assert connection.recv(12) == b"HTTP/1.1 200"
        for _ in range(20):
            assert service.client.get(f"/sandboxes/{sandbox}/files").status_code == 200

    assert service.peak_bytes() - before < GROWTH


def test_a_download_that_fails_half_way_does_not_look_complete(service: Process, sandbox: str) -> None:
    service.client.put(f"/sandboxes/{sandbox}/files/large", content=zeros(64 * MIB))

    for path in (f"/sandboxes/{sandbox}/files/large", f"/sandboxes/{sandbox}/archive"):
        with service.client.stream("GET", path) as answer:
            pieces = answer.iter_raw()
            assert next(pieces)
            service.kill_agent(sandbox)
            with pytest.raises(httpx.RemoteProtocolError):
                list(pieces)
    wait_until(lambda: service.outcomes("file.read", sandbox) == ["sandbox_lost"])


def test_an_upload_whose_client_leaves_is_never_written(service: Process, sandbox: str) -> None:
    head = f"PUT /api/v1/sandboxes/{sandbox}/files/half HTTP/1.1\r\nContent-Length: {10 * MIB}"
    with service.connect(head) as connection:
        connection.sendall(bytes(3 * MIB))
        wait_until(lambda: os.listdir(service.workspace(sandbox)))

    wait_until(lambda: service.outcomes("file.write", sandbox) == ["abandoned"])
    # The agent hears of it after the record has it.
    wait_until(lambda: os.listdir(service.workspace(sandbox)) == [])


def test_a_download_whose_client_leaves_ends(service: Process, sandbox: str) -> None:
    service.client.put(f"/sandboxes/{sandbox}/files/large", content=zeros(64 * MIB))

    with service.connect(f"GET /api/v1/sandboxes/{sandbox}/files/large HTTP/1.1") as connection:
        assert connection.recv(12) == b"HTTP/1.1 200"

    wait_until(lambda: service.outcomes("file.read", sandbox) == ["abandoned"])


def test_the_log_holds_nothing_of_a_users(service: Process, sandbox: str) -> None:
    client, at = service.client, f"/sandboxes/{sandbox}"
    client.post("/sandboxes", json={"env": {"SECRET": CANARY}, "metadata": {"a": CANARY}, "session_key": CANARY})
    client.post(f"{at}/exec", json={"code": f"print('{CANARY}'); raise ValueError('{CANARY}')", "env": {"X": CANARY}})
    client.post(f"{at}/exec", json={"command": f"echo {CANARY} >&2; exit 3", "stdin": CANARY})
    client.post(f"{at}/exec", content=f'{{"{CANARY}": '.encode(), headers={"Content-Type": "application/json"})
    client.post(f"{at}/exec", json={CANARY: CANARY})
    client.put(f"{at}/files/{CANARY}", content=CANARY.encode())
    client.get(f"{at}/files/{CANARY}.missing", headers={"Range": CANARY, "If-Match": CANARY})
    client.get(f"{at}/files", params={"path": CANARY, CANARY: CANARY})
    client.post(f"{at}/search", json={"regex": f"({CANARY}"})
    client.get("/nowhere", headers={"X-Other": CANARY, "Cookie": CANARY, "User-Agent": CANARY})
    refused = httpx.get(
        f"{service.url}/api/v1/sandboxes",
        headers={"Authorization": f"Bearer wrn_{CANARY}"},
        timeout=DEADLINE_S,
        trust_env=False,
    )
    service.client.delete(at)

    with open(service.log, encoding="utf-8") as log:
        lines = [json.loads(line) for line in log]
    written = json.dumps(lines)
    assert refused.status_code == 401
    assert CANARY not in written
    assert service.key not in written
    finished = [line for line in lines if line["event"] == "request.finished"]
    assert {"time", "level", "request_id", "route", "status", "duration_ms", "subject"} <= set(finished[-1])
    assert sandbox in {line.get("sandbox_id") for line in finished}
