"""A real agent in its own process, and a small blocking client that speaks the wire."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warren.guest.executions.execution import USUAL
from warren.guest.wire.boot import Boot
from warren.guest.wire.frames import Decoder, Header, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE_S = 60.0
LIMITS = {"memory_bytes": 512 << 20, "pids": 256, "checkpoint_bytes": 64 << 20, "checkpoints": 1}


def until(ready: Callable[[], bool]) -> None:
    """Wait for something that no event tells us of."""
    deadline = time.monotonic() + DEADLINE_S
    while not ready():
        assert time.monotonic() < deadline
        select.select([], [], [], 0.005)


def has_ended(pid: int) -> bool:
    """Tell whether it has ended; who inherits an orphan outside a sandbox may be slow to reap it."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def ignored_signals(status: str) -> int:
    """Read the mask of a `/proc/PID/status`, without 32 and 33: the C library's own, ignored by what make starts."""
    mask = next(line.partition("\t")[2] for line in status.splitlines() if line.startswith("SigIgn:"))
    return int(mask, 16) & ~(3 << 31)


@dataclass
class Reply:
    """All that came on one stream."""

    events: list[tuple[Header, bytes]] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    credit: int = 0
    end: Header | None = None

    payload: bytes = b""
    """What came with the end."""

    @property
    def result(self) -> dict[str, Any]:
        header, payload = self.events[-1]
        assert header["kind"] == "result", header
        sizes = header["parts"]
        body: dict[str, Any] = {**USUAL, **json.loads(payload[: sizes[0]])}
        body["stdout"] = payload[sizes[0] : sizes[0] + sizes[1]].decode()
        body["stderr"] = payload[sizes[0] + sizes[1] :].decode()
        return body

    def output(self, kind: str = "stdout") -> bytes:
        return b"".join(payload for header, payload in self.events if header["kind"] == kind)


class Client:
    """One connection to an agent."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(path)
        self._decoder = Decoder()
        self._next = 1
        self._frames: list[tuple[Header, bytes]] = []
        self._replies: dict[int, Reply] = {}
        self._held: bytearray | None = None
        self.hello = self._receive()[0]

    def close(self) -> None:
        self.socket.close()

    def send(self, header: Header, payload: bytes = b"") -> None:
        data = b"".join(encode(header, payload))
        if self._held is not None:
            self._held += data
        else:
            self.socket.sendall(data)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Send what is sent in the block in one piece: it is handled before anything that happens because of it."""
        held = self._held = bytearray()
        try:
            yield
        finally:
            self._held = None
        self.socket.sendall(held)

    def start(self, op: str, payload: bytes = b"", **params: Any) -> int:
        stream, self._next = self._next, self._next + 2
        self._replies[stream] = Reply()
        self.send({"t": "req", "id": stream, "op": op, **params}, payload)
        return stream

    def wait(self, stream: int) -> Reply:
        return self.wait_for(stream, lambda reply: reply.end is not None)

    def wait_for(self, stream: int, ready: Any) -> Reply:
        reply = self._replies[stream]
        while not ready(reply):
            self._take(*self._receive())
        return reply

    def call(self, op: str, payload: bytes = b"", **params: Any) -> Header:
        end = self.wait(self.start(op, payload, **params)).end
        assert end is not None
        return end

    def run(self, code: str, **params: Any) -> dict[str, Any]:
        reply = self.wait(self.start_run(code, **params))
        assert reply.end is not None
        assert reply.end["t"] == "ok", reply.end
        return reply.result

    def start_run(self, code: str, **params: Any) -> int:
        return self.start("run", code.encode(), **{"exec": f"exe_{os.urandom(8).hex()}", **params})

    def _take(self, header: Header, payload: bytes) -> None:
        reply = self._replies.get(header.get("id", 0))
        if reply is None:
            return
        if header["t"] == "event":
            reply.events.append((header, payload))
        elif header["t"] == "data":
            reply.data += payload
        elif header["t"] == "credit":
            reply.credit += header["n"]
        elif header["t"] in ("ok", "err"):
            reply.end, reply.payload = header, payload

    def _receive(self) -> tuple[Header, bytes]:
        deadline = time.monotonic() + DEADLINE_S
        while not self._frames:
            assert time.monotonic() < deadline
            data = self.socket.recv(1 << 20)
            if not data:
                raise EOFError
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)


@dataclass
class RunningAgent:
    """The agent's process, and where to reach it."""

    process: subprocess.Popen[bytes]
    path: str
    workspace: str
    log: str

    def connect(self) -> Client:
        return Client(self.path)

    def report(self) -> str:
        with open(self.log) as file:
            return file.read()


@contextlib.contextmanager
def running_agent(**boot: Any) -> Iterator[RunningAgent]:
    """Start an agent in a private folder; at the end nothing of it is left."""
    with tempfile.TemporaryDirectory() as folder:
        path, workspace, log, temporary = (os.path.join(folder, n) for n in ("socket", "workspace", "log", "tmp"))
        os.mkdir(workspace)
        os.mkdir(temporary)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(16)
        env = {"PATH": os.environ["PATH"], "HOME": workspace, "TMPDIR": temporary, "LANG": "C.UTF-8"}
        value = Boot(
            **{
                "sandbox_id": "sbx_00000000",
                "listener_fd": listener.fileno(),
                "workspace": workspace,
                "env": env,
                "limits": LIMITS,
                "contained": False,
                **boot,
            }
        )
        reading, writing = os.pipe()
        os.write(writing, json.dumps(value.to_json()).encode())
        os.close(writing)
        with open(log, "wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "warren.guest", str(reading)],
                pass_fds=[listener.fileno(), reading, *value.facts.values()],
                stderr=errors,
            )
        os.close(reading)
        listener.close()
        agent = RunningAgent(process, path, workspace, log)
        try:
            yield agent
            assert process.poll() is None, agent.report()
            assert agent.report() == ""
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the agent and all its descendants: the forkserver, kernels and their copies are its children."""
    found = _children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                for child in map(int, file.read().split()):
                    found += [child, *_children(child)]
    return found
