"""A world outside for sandboxes: a network of the test's own with public, private and metadata addresses on it.

The service runs in it, on the local engine; names lead where the test says, and servers are real ones in threads.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import functools
import json
import os
import socket
import socketserver
import ssl
import struct
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from security.egress_certificates import Authority
from warren.bootstrap.app import build_service
from warren.core.egress.dialer import Unreached
from warren.core.sandboxes.creation import NewSandbox
from warren.domain.egress import Egress, EgressMode, EgressRule
from warren.domain.records import AuditQuery, Caller, Principal, Scope
from warren.domain.values import ExecKind, ExecRequest, new_id
from warren.engines.local.linux.namespaces import bring_up_loopback
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from pathlib import Path

    from warren.core.service import Service
    from warren.domain.values import ExecResult

PUBLIC = "93.184.216.34"
ELSEWHERE = "93.184.216.35"
PRIVATE = "10.1.2.3"
METADATA = "169.254.169.254"
DEADLINE_S = 60.0
_CLONE_NEWNET = 0x40000000
_SIOCSIFADDR = 0x8916


class World:
    """The service, its sandboxes, and what is around them."""

    def __init__(self, portal: BlockingPortal, service: Service, authority: Authority) -> None:
        self.portal = portal
        self.service = service
        self.authority = authority
        self.caller = Caller(principal=Principal(subject="ann", tenant="tests", scope=Scope.ADMIN), request_id="test")
        self.names: dict[str, list[tuple[str, ...]]] = {}
        """Where names lead, now and, while there are more, the next time."""
        self.looked_up: list[str] = []
        service.egress_proxy.around.resolve = self._resolve
        # All of this world is on one host; some of it stands for others.
        service.egress.policies.is_ours = lambda _address: False

    def create(self, mode: str = "rules", *hosts: str, ports: tuple[int, ...] = (80, 443), **fields: Any) -> str:
        """Make a sandbox that may reach these hosts, or what its mode says."""
        rules = tuple(EgressRule(host=host, ports=ports, **fields) for host in hosts)
        return self.create_with(Egress(mode=EgressMode(mode), rules=rules))

    def create_with(self, egress: Egress) -> str:
        created = self.portal.call(self.service.sandboxes.create, self.caller, NewSandbox(egress=egress))
        return str(created[0].id)

    def delete(self, sandbox: str) -> None:
        self.portal.call(self.service.sandboxes.delete, self.caller, sandbox)

    def run(
        self, sandbox: str, code: str, kind: ExecKind = ExecKind.SCRIPT, timeout_s: float = DEADLINE_S
    ) -> ExecResult:
        """Run a program inside, and wait for its end."""
        return self.portal.call(
            self._run, sandbox, ExecRequest(id=new_id("exe"), kind=kind, code=code, timeout_s=timeout_s)
        )

    def write(self, sandbox: str, path: str, content: bytes) -> None:
        """Put a file into the workspace."""
        self.portal.call(self._write, sandbox, path, content)

    def shell(self, sandbox: str, command: str) -> tuple[int | None, str]:
        """Run a command inside; return its exit code and all that it said."""
        result = self.run(sandbox, f"({command}) 2>&1", ExecKind.SHELL)
        return result.exit_code, result.stdout.decode(errors="replace")

    def python(self, sandbox: str, code: str) -> Any:
        """Run a program inside that ends well and says a value in JSON."""
        result = self.run(sandbox, code)
        assert result.exit_code == 0, result.stderr.decode(errors="replace")
        return json.loads(result.stdout)

    def say(self, sandbox: str, *pieces: bytes) -> bytes:
        """Make a program send these bytes to the egress proxy, piece by piece, and return the whole answer."""
        encoded = [base64.b64encode(piece).decode() for piece in pieces]
        said = self.python(sandbox, _SAY.format(pieces=encoded))
        return base64.b64decode(said)

    def get(self, sandbox: str, url: str, **headers: str) -> tuple[int, str]:
        """Ask for a page as a plain HTTP client does; return its status and text."""
        host = url.removeprefix("http://").partition("/")[0]
        lines = {"Host": host, "Connection": "close"} | headers
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return parse_answer(self.say(sandbox, f"GET {url} HTTP/1.1\r\n{head}\r\n".encode()))

    def records(self, sandbox: str, action: str = "egress.connect") -> list[dict[str, Any]]:
        """Return what is written down of a sandbox's connections, the oldest first, once nothing of it is open."""
        return self.portal.call(self._records, sandbox, action)

    @contextlib.contextmanager
    def serve(self, handler: Callable[[socket.socket], object], address: str = PUBLIC, port: int = 80) -> Iterator[int]:
        """Run a server for the length of a block; yields its port."""
        listener = self.portal.call(functools.partial(socket.create_server, (address, port)))
        server = _Server(listener, handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.shutdown()
            thread.join(DEADLINE_S)
            server.server_close()

    def secure(
        self, handler: Callable[[socket.socket], object], *names: str, curve: str = ""
    ) -> Callable[[socket.socket], None]:
        """Have a server speak TLS, with a certificate for these names."""
        context = self.authority.server_context(*names)
        if curve:
            context.set_ecdh_curve(curve)

        def speak(connection: socket.socket) -> None:
            try:
                with context.wrap_socket(connection, server_side=True) as secured:
                    handler(secured)
            except (ssl.SSLError, OSError):
                pass  # The client did not want to, which is what some tests are about.

        return speak

    async def _run(self, sandbox: str, request: ExecRequest) -> ExecResult:
        async with self.service.sandboxes.use(self.caller, sandbox) as live:
            return await live.agent.run(request)

    async def _write(self, sandbox: str, path: str, content: bytes) -> None:
        async with self.service.sandboxes.use(self.caller, sandbox) as live:
            await live.agent.write(path, content)

    async def _records(self, sandbox: str, action: str) -> list[dict[str, Any]]:
        with anyio.fail_after(DEADLINE_S):
            live = self.service.egress_proxy.around.traffic.live
            while action == "egress.connect" and live.get(sandbox):  # noqa: ASYNC110 - nothing tells when it is over
                await anyio.sleep(0.01)
        await self.service.audit.flush()
        page = await self.service.store.audit(AuditQuery(sandbox_id=sandbox, limit=500))
        rows = [row.entry for row in page.items if row.entry.action == action]
        return [{**row.details, "outcome": row.outcome} for row in reversed(rows)]

    async def _resolve(self, _owner: Hashable, name: str) -> tuple[str, ...]:
        self.looked_up.append(name)
        if name not in self.names:
            raise Unreached(f"{name} cannot be found: check its spelling.")
        answers = self.names[name]
        return answers.pop(0) if len(answers) > 1 else answers[0]


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Calls a function with each connection, in a thread."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, handler: Callable[[socket.socket], object]) -> None:
        super().__init__(listener.getsockname(), socketserver.BaseRequestHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self._handler = handler

    def finish_request(self, request: Any, client_address: Any) -> None:
        del client_address
        request.settimeout(DEADLINE_S)
        with contextlib.suppress(OSError):
            self._handler(request)


@contextlib.contextmanager
def open_world(folder: Path, images_dir: str, **egress: object) -> Iterator[World]:
    """Start a service in a network of its own, and end everything of it."""
    if os.geteuid() != 0:
        pytest.skip("a network of the test's own takes root")
    authority = Authority(folder)
    data = folder / "data"
    data.mkdir()
    os.symlink(os.path.join(images_dir, "images"), data / "images")
    settings = Settings.model_validate(
        {
            "data_dir": str(data),
            "engine": "local",
            "image": "python",
            "pool": {"size": 0},
            "tenant": {"egress_hosts": ("0.0.0.0/0", "10.0.0.0/8", "127.0.0.0/8", "*.example", "exact.example")},
            "egress": {"ca_file": str(authority.path), **egress},
        }
    )
    with start_blocking_portal("asyncio", backend_options={"use_uvloop": True}) as portal:
        portal.call(_enter_network)
        service = build_service(settings)
        with portal.wrap_async_context_manager(service):
            world = World(portal, service, authority)
            yield world
            for sandbox in list(service.sandboxes.transitions.live_sandboxes):
                world.delete(sandbox)
        engine: Any = service.engine
        portal.call(engine.retire)


def read_head(connection: socket.socket) -> bytes:
    """Read a request up to its empty line, and what came with it."""
    said = b""
    while b"\r\n\r\n" not in said and (piece := connection.recv(65_536)):
        said += piece
    return said


def read_request(connection: socket.socket) -> bytes:
    """Read a request with as much body as it says that it has, and return its head."""
    head, _, body = read_head(connection).partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            left = int(line.partition(b":")[2]) - len(body)
            while left > 0 and (piece := connection.recv(left)):
                left -= len(piece)
    return head


def say_hello(connection: socket.socket) -> None:
    """Answer every request with its own head."""
    while head := read_head(connection):
        body = head
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def parse_answer(data: bytes) -> tuple[int, str]:
    """Take apart one answer; its body as text."""
    while data.startswith(b"HTTP/1.1 100"):
        data = data.partition(b"\r\n\r\n")[2]
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 "), data[:200]
    return int(head[9:12]), body.decode(errors="replace")


def _enter_network() -> None:
    """Give this thread, and what it makes, a network with nothing but these addresses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    bring_up_loopback()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for number, address in enumerate((PUBLIC, ELSEWHERE, PRIVATE, METADATA)):
            name = f"lo:{number}".encode()
            request = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(control, _SIOCSIFADDR, request)


_SAY = """
import base64, json, socket
connection = socket.create_connection(("127.0.0.1", 3128), 20)
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for piece in {pieces}:
    try:
        connection.sendall(base64.b64decode(piece))
    except OSError:
        break
received = b""
try:
    while data := connection.recv(65536):
        received += data
except OSError:
    pass
print(json.dumps(base64.b64encode(received).decode()))
"""
