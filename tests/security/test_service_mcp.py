"""MCP under attack: too many sessions, unread answers, and streams of other owners."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from e2e.serving import wait_until
from security.attacked import Attacked, attacked
from warren.domain.records import Owner
from warren.mcp_server.answer_memory import AnswerMemory

if TYPE_CHECKING:
    from collections.abc import Iterator

SESSIONS = 3
_MODERN, _OLDER = "2026-07-28", "2025-06-18"
_PICTURE = 3_000_000
_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": _OLDER, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}


@pytest.fixture(autouse=True)
def _guarded() -> None:
    """No sandbox is attacked here: the service is."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[Attacked]:
    assert python_image
    with attacked(tmp_path_factory.mktemp("mcp"), images_dir, mcp_own_sessions=SESSIONS) as target:
        yield target


def _headers(target: Attacked, who: str, **more: str) -> dict[str, str]:
    accepts = "application/json, text/event-stream"
    return {"Authorization": f"Bearer {target.secrets[who]}", "Accept": accepts, **more}


def _call(tool: str, **arguments: Any) -> dict[str, Any]:
    names = {"protocolVersion": _MODERN, "clientInfo": {"name": "x", "version": "1"}, "clientCapabilities": {}}
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in names.items()}
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def _modern(target: Attacked, who: str, tool: str, **arguments: Any) -> dict[str, Any]:
    named = {"mcp-protocol-version": _MODERN, "mcp-method": "tools/call", "mcp-name": tool}
    answer = httpx.post(
        f"{target.url}/mcp", headers=_headers(target, who, **named), json=_call(tool, **arguments), timeout=60
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["result"]
    return found


def test_two_protocol_versions_do_not_double_the_share_of_sessions(target: Attacked) -> None:
    """The library goes by the first of two headers, and so does what counts."""
    said = [*_headers(target, "ann").items(), ("mcp-protocol-version", _OLDER), ("mcp-protocol-version", _MODERN)]
    statuses = [
        httpx.post(f"{target.url}/mcp", headers=said, json=_HELLO, timeout=60).status_code for _ in range(SESSIONS + 3)
    ]

    assert statuses == [200] * SESSIONS + [429] * 3
    hello = httpx.post(f"{target.url}/mcp", headers=_headers(target, "bob"), json=_HELLO, timeout=60)
    assert hello.status_code == 200
    stolen = _headers(target, "carl", **{"mcp-session-id": hello.headers["mcp-session-id"]})
    assert httpx.delete(f"{target.url}/mcp", headers=stolen, timeout=60).status_code == 404


@contextlib.contextmanager
def _stream(target: Attacked, who: str) -> Iterator[tuple[socket.socket, str]]:
    """Open a stream of events, of which nothing is read but where to send messages."""
    with socket.socket() as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.settimeout(60)
        stream.connect(("127.0.0.1", target.service.port))
        stream.sendall(f"GET /sse HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.secrets[who]}\r\n\r\n".encode())
        said = b""
        while (found := re.search(rb"data: (/messages/\?session_id=[0-9a-f]{32})\r?\n", said)) is None:
            said += stream.recv(4096)
        yield stream, found[1].decode()


def test_unread_answers_take_no_more_memory_than_one_owner_may_have(target: Attacked) -> None:
    _modern(target, "ann", "run_python", code=f"n = open('x.png', 'wb').write(bytes({_PICTURE}))", session_id="s")
    ask = _call("read_file", path="x.png", session_id="s")
    del ask["params"]["_meta"]
    before = target.memory_mb()
    with _stream(target, "ann") as (_, path), httpx.Client(base_url=target.url, timeout=60) as client:
        assert client.post(path, headers=_headers(target, "bob"), json=_HELLO).status_code == 404
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        for message in (_HELLO, ready, *(ask | {"id": number} for number in range(2, 62))):
            client.post(path, headers=_headers(target, "ann"), json=message)
        # What is too much ends the stream: no reader is left for messages.
        own = _headers(target, "ann")
        wait_until(lambda: client.post(path, headers=own, json=ready).status_code == 404, "the stream to end")
    assert target.memory_mb() - before < 150
    assert _modern(target, "ann", "read_file", path="x.png", session_id="s")["structuredContent"]["size"] == _PICTURE


def test_of_answers_on_many_connections_only_some_wait_to_be_read(target: Attacked) -> None:
    _modern(target, "ann", "run_python", code=f"n = open('x.png', 'wb').write(bytes({_PICTURE}))", session_id="s")
    named = {"mcp-protocol-version": _MODERN, "mcp-method": "tools/call", "mcp-name": "read_file"}
    body = json.dumps(_call("read_file", path="x.png", session_id="s")).encode()
    lines = _headers(target, "ann", **named, **{"Content-Type": "application/json", "Content-Length": str(len(body))})
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    refused = 0
    with contextlib.ExitStack() as held:
        for _ in range(30):
            asking = held.enter_context(socket.socket())
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            asking.settimeout(60)
            asking.connect(("127.0.0.1", target.service.port))
            asking.sendall(f"POST /mcp HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode() + body)
            refused += b"content-length: 4" not in asking.recv(2000).lower()
    assert 10 < refused < 25
    assert not _modern(target, "ann", "read_file", path="x.png", session_id="s").get("isError")


def test_what_is_counted_is_given_back() -> None:
    unread, ann, bob = AnswerMemory(own=10, everybody=15), Owner("t", "ann"), Owner("t", "bob")
    with unread.one(ann) as first, unread.one(ann) as second, unread.one(bob) as third:
        assert first.fits({"a": ["12345678"], "b": 3})
        assert not second.fits("123")
        assert not third.fits("12345678")
        assert third.fits("1234567")
        assert unread.held == 15
    assert first.fits("x" * 100)
    assert unread.held == 0
    with unread.one(ann) as alone:
        assert alone.fits("x" * 100)
