"""A stand-in for the agent: starts a real forkserver, requests real kernels and scripts, and reads their frames."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from warren.guest.wire.frames import Decoder, Header, encode

DEADLINE_S = 60.0
PR_SET_CHILD_SUBREAPER = 36
MIB = 1 << 20

_PROGRAM = """
import json, os, socket, sys
options = json.loads(sys.argv[2])
for name in options["without"]:
    sys.modules[name] = None
sys.path[:0] = options["path"]
for name in options["preload"]:
    __import__(name)
from warren.guest.interpreter import forkserver
link, pid = forkserver.start(options["workspace"])
with socket.socket(fileno=int(sys.argv[1])) as answer:
    socket.send_fds(answer, [str(pid).encode()], [link.fileno()])
os._exit(0)
"""


@dataclass
class Ran:
    """What one cell did, as the agent would see it."""

    status: str
    exit_code: int
    error: dict[str, str] | None
    stdout: str
    stderr: str
    displays: list[dict[str, Any]] = field(default_factory=list)
    copy: Checkpoint | None = None
    why_unprotected: str | None = None
    wait_status: int | None = None
    """Set when the kernel died instead of finishing."""

    @property
    def texts(self) -> list[str]:
        return [display["data"]["text/plain"] for display in self.displays]


class AgentClient:
    """Frames over one socket, waited for with a deadline."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._decoder = Decoder()
        self._frames: list[tuple[Header, bytes]] = []
        self.fds: list[int] = []

    def send(self, header: Header, payload: bytes = b"", fds: tuple[int, ...] = ()) -> None:
        data = b"".join(encode(header, payload))
        sent = socket.send_fds(self.socket, [data], fds) if fds else 0
        if sent < len(data):
            self.socket.sendall(data[sent:])

    def ready(self) -> bool:
        return bool(self._frames)

    def receive(self, timeout_s: float = DEADLINE_S) -> tuple[Header, bytes] | None:
        while not self._frames:
            assert select.select([self.socket], [], [], timeout_s)[0], "nothing was said in time"
            try:
                data, fds, _, _ = socket.recv_fds(self.socket, 1 << 20, 8)
            except ConnectionError:
                return None
            self.fds += fds
            if not data:
                return None
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    def close(self) -> None:
        self.socket.close()
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()


class ForkserverHarness:
    """One forkserver, and all the processes that it made."""

    def __init__(
        self,
        workspace: str,
        *,
        without: tuple[str, ...] = (),
        preload: tuple[str, ...] = (),
        path: tuple[str, ...] = (),
    ) -> None:
        self.workspace = workspace
        self.env = {"PATH": os.environ["PATH"], "HOME": workspace, "TMPDIR": workspace}
        self._pids: list[int] = []
        self._links: list[AgentClient] = []
        # The forkserver's children are its parent's, and it is ours once the process that forked it is gone.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        options = json.dumps({"without": without, "preload": preload, "path": path, "workspace": workspace})
        mine, theirs = socket.socketpair()
        with mine, theirs:
            command = [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), options]
            subprocess.run(command, pass_fds=[theirs.fileno()], check=True, timeout=DEADLINE_S)
            data, fds, _, _ = socket.recv_fds(mine, 64, 1)
        self.pid = int(data)
        self.successor = self._wait_for_successor()
        """Who is the forkserver when this one has become a kernel."""
        self._pids += [self.pid, self.successor]
        self.link = self._track(AgentClient(socket.socket(fileno=fds[0])))

    def spawn(self, fds: tuple[int, ...], *, payload: bytes = b"", **header: Any) -> Header:
        self.link.send({"t": "spawn", "env": self.env, "cwd": self.workspace, "argv": [], **header}, payload, fds)
        frame = self.link.receive()
        assert frame is not None
        if "nursery" in frame[0]:
            self.pid = frame[0]["nursery"]
            if self.pid not in self._pids:
                self._pids.append(self.pid)
        return frame[0]

    def kernel(self, **header: Any) -> Kernel:
        mine, theirs = socket.socketpair()
        null = os.open(os.devnull, os.O_RDWR)
        with theirs:
            spawned = self.spawn((theirs.fileno(), null, null, null), mode="kernel", **header)
        os.close(null)
        kernel = Kernel(self, spawned["pid"], self._track(AgentClient(mine)))
        kernel.spawned = spawned
        kernel.up = kernel.expect("up")
        return kernel

    def script(self, source: str, *argv: str, stdin: bytes = b"", **header: Any) -> tuple[int, str, str]:
        """Run a script to its end: (wait status, stdout, stderr)."""
        pipes = Pipes(stdin)
        null = os.open(os.devnull, os.O_RDWR)
        spawned = self.spawn((null, *pipes.theirs), payload=source.encode(), mode="script", argv=list(argv), **header)
        os.close(null)
        pipes.close_theirs()
        pipes.drain_to_end()
        return self.wait(spawned["pid"]), *pipes.close()

    def wait(self, pid: int) -> int:
        deadline = time.monotonic() + DEADLINE_S
        descriptor = os.pidfd_open(pid)
        try:
            assert select.select([descriptor], [], [], deadline - time.monotonic())[0], f"{pid} did not end"
        finally:
            os.close(descriptor)
        self._pids.remove(pid)
        return os.waitpid(pid, 0)[1]

    def adopt(self, pid: int, sock: socket.socket) -> AgentClient:
        self._pids.append(pid)
        return self._track(AgentClient(sock))

    def close(self) -> None:
        for link in self._links:
            link.close()
        for pid in list(self._pids):
            os.kill(pid, signal.SIGKILL)
            self.wait(pid)

    def _wait_for_successor(self) -> int:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
                children = [int(pid) for pid in file.read().split()]
            # In the order in which they were born, which numbers are not: those begin anew at some point.
            younger = children[children.index(self.pid) + 1 :]
            if younger:
                return younger[0]
            os.sched_yield()
        raise AssertionError("the forkserver forked no successor")

    def _track(self, link: AgentClient) -> AgentClient:
        self._links.append(link)
        return link


class Pipes:
    """The three pipes of one cell or script."""

    def __init__(self, stdin: bytes = b"") -> None:
        stdin_read, self._stdin = os.pipe()
        self._out, out = os.pipe()
        self._err, err = os.pipe()
        os.write(self._stdin, stdin)
        os.close(self._stdin)
        self.theirs = (stdin_read, out, err)
        self._data = {self._out: b"", self._err: b""}
        self._open = {self._out, self._err}

    def close_theirs(self) -> None:
        for fd in self.theirs:
            os.close(fd)

    def fds(self) -> list[int]:
        return list(self._open)

    def read(self, ready: list[int]) -> None:
        for fd in [fd for fd in ready if fd in self._open]:
            data = os.read(fd, 1 << 20)
            self._data[fd] += data
            if not data:
                self._open.discard(fd)

    def stdout_so_far(self) -> str:
        return self._data[self._out].decode()

    def drain_to_end(self) -> None:
        while self._open:
            ready = select.select(self.fds(), [], [], DEADLINE_S)[0]
            assert ready, "the output did not end"
            self.read(ready)

    def close(self) -> tuple[str, str]:
        while ready := select.select(self.fds(), [], [], 0)[0]:
            self.read(ready)
        os.close(self._out)
        os.close(self._err)
        return self._data[self._out].decode(errors="replace"), self._data[self._err].decode(errors="replace")


class Checkpoint:
    """A frozen copy as the agent holds it."""

    def __init__(self, forkserver: ForkserverHarness, pid: int, sock: socket.socket, private_bytes: int) -> None:
        self._forkserver = forkserver
        self.pid = pid
        self.private_bytes = private_bytes
        self.link = forkserver.adopt(pid, sock)

    def wake(self) -> Kernel:
        self.link.send({"t": "wake"})
        kernel = Kernel(self._forkserver, self.pid, self.link)
        kernel.up = kernel.expect("up")
        return kernel

    def drop(self) -> int:
        self.link.close()
        return self._forkserver.wait(self.pid)


class Kernel:
    """A live kernel as the agent holds it."""

    spawned: Header
    up: Header

    def __init__(self, forkserver: ForkserverHarness, pid: int, link: AgentClient) -> None:
        self.forkserver = forkserver
        self.pid = pid
        self.link = link
        self._count = 0

    def expect(self, kind: str) -> Header:
        frame = self.link.receive()
        assert frame is not None, "the kernel is gone"
        assert frame[0]["t"] == kind, frame
        return frame[0]

    def start(self, code: str, *, stdin: bytes = b"", **header: Any) -> Pipes:
        self._count += 1
        pipes = Pipes(stdin)
        head: Header = {
            "t": "cell",
            "exec": f"exe_{self._count}",
            "echo": "display",
            "cwd": None,
            "env": {},
            "checkpoint": 0,
        }
        self.link.send({**head, **header}, code.encode(), pipes.theirs)
        pipes.close_theirs()
        return pipes

    def finish(self, pipes: Pipes, *, wants_copy: bool = False) -> Ran:
        displays: list[dict[str, Any]] = []
        while True:
            if not self.link.ready():
                ready = select.select([self.link.socket.fileno(), *pipes.fds()], [], [], DEADLINE_S)[0]
                assert ready, "the cell did not end"
                pipes.read(ready)
                if self.link.socket.fileno() not in ready:
                    continue
            frame = self.link.receive()
            if frame is None:
                status = self.forkserver.wait(self.pid)
                return Ran("died", -1, None, *pipes.close(), displays, wait_status=status)
            header, payload = frame
            assert header["exec"] == f"exe_{self._count}"
            if header["t"] == "display":
                displays.append({"kind": header["display"], **json.loads(payload)})
            elif header["t"] == "done":
                ran = Ran(header["status"], header["exit_code"], header["error"], *pipes.close(), displays)
                if wants_copy:
                    self._take_copy(ran)
                return ran

    def run(self, code: str, **header: Any) -> Ran:
        return self.finish(self.start(code, **header), wants_copy=header.get("checkpoint", 0) > 0)

    def fork(self) -> Ran:
        self.link.send({"t": "fork", "exec": "tok_1", "checkpoint": 0})
        ran = Ran("ok", 0, None, "", "")
        self._take_copy(ran)
        return ran

    def interrupt(self) -> None:
        os.killpg(self.pid, signal.SIGINT)

    def _take_copy(self, ran: Ran) -> None:
        frame = self.link.receive()
        assert frame is not None
        header = frame[0]
        if header["t"] == "unprotected":
            ran.why_unprotected = header["why"]
        else:
            sock = socket.socket(fileno=self.link.fds.pop(0))
            ran.copy = Checkpoint(self.forkserver, header["pid"], sock, header["private_bytes"])
