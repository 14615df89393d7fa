"""What was asked over a stream of events is answered on it to the end before the service stops."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

from e2e.serving import DEADLINE_S, create, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from e2e.serving import RunningService

HELLO: dict[str, Any] = {
    "protocolVersion": "2025-03-26",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
SIZE = 4 << 20
"""Of a text of quotation marks: as JSON it is twice as long, and more than this system keeps of unread data."""


class Stream:
    """A client of `/sse` that reads only when it is told to."""

    def __init__(self, service: RunningService) -> None:
        self._service = service
        self._connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=DEADLINE_S)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self._connection.request("GET", "/sse", headers={"Authorization": f"Bearer {service.key}"})
        self._said = self._connection.getresponse()
        self._address = self.read("endpoint")
        self.send("initialize", 1, **HELLO)
        assert json.loads(self.read("message"))["id"] == 1
        self.send("notifications/initialized", None)

    def send(self, method: str, number: int | None, **params: Any) -> int:
        """Send a message; returns how that was answered."""
        body = {"jsonrpc": "2.0", "method": method, "params": params, **({} if number is None else {"id": number})}
        with self._service.client() as client:
            return client.post(f"http://127.0.0.1:{self._service.port}{self._address}", json=body).status_code

    def read(self, name: str) -> str:
        """Read the next event of a name, and return its data. Raises EOFError when the stream ends before."""
        is_it = False
        while line := self._said.readline().decode():
            if line.startswith("event:"):
                is_it = line.split()[1] == name
            if is_it and line.startswith("data:"):
                return line.removeprefix("data:").strip()
        raise EOFError

    def close(self) -> None:
        self._said.close()
        self._connection.close()


def _post(service: RunningService, method: str, number: int, session: str = "", **params: Any) -> httpx.Response:
    """Ask by streamable HTTP."""
    headers = {"Accept": "application/json, text/event-stream", **({"Mcp-Session-Id": session} if session else {})}
    body = {"jsonrpc": "2.0", "method": method, "id": number, "params": params}
    with service.client() as client:
        return client.post(f"http://127.0.0.1:{service.port}/mcp", json=body, headers=headers)


def _wait_inside(client: httpx.Client) -> str:
    """Wait until the tool runs, and return its sandbox."""
    found = client.get("/sandboxes", params={"metadata": "dialect=mcp"}).json()["items"]
    running = client.get(f"/sandboxes/{found[0]['id']}/executions").json()["items"] if found else []
    return str(found[0]["id"]) if running and running[0]["status"] == "running" else ""


def test_answers_are_sent_to_their_end(serve: Callable[..., RunningService]) -> None:
    service = serve("bare", serve_drain_s=DEADLINE_S).start()
    answers: list[httpx.Response] = []
    with service.client() as client, contextlib.closing(Stream(service)) as stream:
        session = _post(service, "initialize", 1, **HELLO).headers["mcp-session-id"]
        call = {"name": "run_bash", "arguments": {"command": "until [ -e go ]; do sleep 0.05; done; echo went"}}
        caller = threading.Thread(target=lambda: answers.append(_post(service, "tools/call", 2, session, **call)))
        caller.start()
        inside = wait_until(lambda: _wait_inside(client), "the tool to run")
        sandbox = create(client)
        client.put(f"/sandboxes/{sandbox}/files/quotes.txt", content=b'"' * SIZE).raise_for_status()
        accepted = stream.send("resources/read", 2, uri=f"warren://{sandbox}/quotes.txt")
        service.signal(signal.SIGTERM)
        wait_until(lambda: service.probe("/readyz").status_code == 503, "the service to be unready")
        refused = stream.send("ping", 3)
        client.put(f"/sandboxes/{inside}/files/go", content=b"").raise_for_status()
        caller.join(DEADLINE_S)
        assert service.process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            # Nothing is under way any more but what this test does not read.
            service.process.wait(2)
        answer = json.loads(stream.read("message"))

    assert (accepted, refused) == (202, 503)
    assert answer["result"]["contents"][0]["text"] == '"' * SIZE
    assert "went" in answers[0].text
    assert service.wait() == 0
