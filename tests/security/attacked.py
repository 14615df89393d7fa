"""A real service under attack: a process of its own, with keys of several tenants, on the engine that needs no right.

What is attacked here is the service: the walls of sandboxes have tests of their own.
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

import httpx

from e2e.serving import DEADLINE_S, RunningService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PEOPLE = {
    "ann": ("north", "ann", "run"),
    "looker": ("north", "ann", "read"),
    "carl": ("north", "carl", "run"),
    "bob": ("south", "bob", "run"),
    "adam": ("south", "adam", "admin"),
}
"""Keys: tenant, subject and scope of each. Looker sees what is ann's; carl shares nothing with her but the tenant."""

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
"""What makes a request that of a WebSocket."""


class Attacked:
    """The service, and clients of all principals."""

    def __init__(self, service: RunningService, secrets: dict[str, str]) -> None:
        self.service = service
        self.secrets = secrets

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.service.port}"

    def client(self, who: str, **options: Any) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.secrets[who]}"} if who in self.secrets else {}
        return httpx.Client(
            base_url=f"{self.url}/api/v1", headers=headers, timeout=DEADLINE_S, trust_env=False, **options
        )

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.service.port), timeout=DEADLINE_S)

    def send_raw(self, data: bytes) -> bytes:
        """Send bytes, and that no more follow; return everything that comes back until the service closes."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection)

    def head(self, who: str, method: str, path: str, *lines: str) -> bytes:
        """Write the head of a request by hand, without its last, empty line."""
        own = (f"{method} /api/v1{path} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.secrets[who]}", *lines)
        return "".join(f"{line}\r\n" for line in own).encode()

    def memory_mb(self) -> float:
        """Return what the service holds in memory."""
        with open(f"/proc/{self.service.pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * 4096 / 1e6

    def operations(self) -> Iterator[tuple[str, str]]:
        """Yield method and path of every operation there is, as it is documented."""
        document = httpx.get(f"{self.url}/openapi.json", timeout=DEADLINE_S, trust_env=False).json()
        for path, methods in document["paths"].items():
            for method in methods:
                if path.startswith("/api/v1/"):
                    yield method.upper(), path.removeprefix("/api/v1")


@contextlib.contextmanager
def attacked(folder: Path, images: str, **settings: object) -> Iterator[Attacked]:
    """Run a service for a while; whatever was done to it, it must still stop as it should."""
    service = RunningService(folder, images, "bare", **settings).start()
    try:
        yield Attacked(service, {who: _make_key(service, who) for who in PEOPLE})
        assert service.probe("/readyz").json()["status"] == "healthy"
        assert service.stop() == 0
        service.check_books()
    finally:
        service.clear()


def read_all(connection: socket.socket) -> bytes:
    """Read until the other side closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 20):
            received += piece
    return received


def fill(path: str, **values: str) -> str:
    """Put values into the braces of a path; whatever is not given is `main`, and a port 8000."""
    for name in ("sandbox_id", "execution_id", "kernel", "terminal", "port", "path"):
        value = values.get(name, "8000" if name == "port" else "main")
        path = path.replace(f"{{{name}}}", value).replace(f"{{{name}:path}}", value)
    return path


def _make_key(service: RunningService, who: str) -> str:
    tenant, subject, scope = PEOPLE[who]
    made = service.run("keys", "create", who, "--tenant", tenant, "--subject", subject, "--scope", scope, "--json")
    assert made.returncode == 0, made.stderr
    return str(json.loads(made.stdout)["secret"])
