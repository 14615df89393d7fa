"""Every connection to the outside is in the record, also when the service is killed in the middle of it."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from e2e.serving import DEADLINE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.serving import RunningService

pytestmark = pytest.mark.root
_PROGRAM = """
import socket
def ask(host):
    connection = socket.create_connection(("127.0.0.1", 3128))
    connection.sendall(b"GET http://%s/ HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n" % (host, host))
    while connection.recv(65536):
        pass
for _ in range(5):
    ask(b"refused.example")
ask(b"127.0.0.1:{port}")
ask(b"127.0.0.1:{port}")
"""


def _rows(service: RunningService, sandbox: str) -> list[dict[str, Any]]:
    with service.client() as client:
        params = {"action": "egress.connect", "sandbox_id": sandbox}
        items = client.get("/audit", params=params).json()["items"]
    return [{"outcome": row["outcome"], **row["details"]} for row in reversed(items)]


def test_what_passed_when_the_service_was_killed_is_written_down_by_the_next(
    serve: Callable[..., RunningService],
) -> None:
    service = serve("local", tenant_egress_hosts="127.0.0.1").start()
    killed = threading.Event()

    def answer(listener: socket.socket) -> None:
        with listener:
            first, _ = listener.accept()
            with first:
                first.recv(65_536)
                first.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            second, _ = listener.accept()
            with second:
                # What was sent is here: there is no later moment for it to be written down.
                second.recv(65_536)
                service.kill()
                killed.set()

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = threading.Thread(target=answer, args=(listener,))
    server.start()
    with service.client() as client:
        rules = {"mode": "rules", "rules": [{"host": "127.0.0.1", "ports": [port]}]}
        sandbox = client.post("/sandboxes", json={"egress": rules}).json()["id"]
        with contextlib.suppress(httpx.TransportError):
            client.post(
                f"/sandboxes/{sandbox}/exec",
                json={"code": _PROGRAM.replace("{port}", str(port)), "language": "python", "background": True},
            ).raise_for_status()
    assert killed.wait(DEADLINE_S)
    server.join(DEADLINE_S)
    rows = _rows(service.start(), sandbox)
    again = _rows(service.restart(), sandbox)

    by_count = sorted((row.get("count", 0), row["host"], row["outcome"]) for row in rows if row["verdict"] == "refused")
    passed = [row for row in rows if row["verdict"] == "allowed"]
    assert by_count == [(0, "refused.example", "refused"), (4, "refused.example", "refused")]
    assert [(row["host"], row["address"], row["port"]) for row in passed] == [("127.0.0.1", "127.0.0.1", port)] * 2
    assert passed[-1]["outcome"] == "lost"
    assert passed[0]["outcome"] in {"ok", "lost"}
    assert len({row["connection"] for row in passed}) == 2
    assert again == rows
    service.check_books()
