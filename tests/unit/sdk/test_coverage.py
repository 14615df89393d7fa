"""Every operation of the API is reached by a method of the client, and every method reaches one."""

from __future__ import annotations

import contextlib
import inspect
import re
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

import warren
from warren.gateway.app import OPERATIONS
from warren.gateway.openapi.document import SERVICE_PATHS
from warren.sdk._sync.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNUSED = {
    ("POST", "/api/v1/sandboxes/{sandbox_id}/start"): "the same as resume",
    ("*", "/api/v1/sandboxes/{sandbox_id}/ports/{port}"): "leads to the address with a slash, which the client knows",
    ("GET", "/health"): "in the words of other products; /healthz says the same",
    ("GET", "/health/details"): "the same; /healthz/details",
    ("GET", "/docs/api"): "for people",
    ("GET", "/openapi.json"): "for other tools",
}
LOCAL = {"close", "at", "execution", "info", "url"}
"""Methods that ask for nothing."""


class Listener:
    """Takes down the first line of each request, and hangs up."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.seen: list[tuple[str, str]] = []

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection:
                    head = b""
                    while b"\r\n\r\n" not in head:
                        head += connection.recv(65_536)
                    method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
                    if b"upgrade: websocket" in head.lower():
                        method = "WEBSOCKET"
                    self.seen.append((method, target.partition("?")[0]))


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


def sample(name: str, tmp_path: Path) -> Any:
    """Return something to call a method with, by the name of its parameter."""
    (tmp_path / "file").write_text("x")
    return {
        "port": 80,
        "archive": b"",
        "content": b"",
        "data": b"x",
        "files": {"a": b""},
        "local": tmp_path if name == "local" else "",
        "to": "other",
    }.get(name, "name")


def call(method: Any, tmp_path: Path, **more: Any) -> None:
    """Call a method with samples for what it must have, and use what it returns until it asks the service."""
    parameters = inspect.signature(method).parameters.values()
    needed = {
        each.name: sample(each.name, tmp_path)
        for each in parameters
        if each.default is each.empty and each.kind not in {each.VAR_KEYWORD, each.VAR_POSITIONAL}
    }
    if "code" in {each.name for each in parameters}:
        needed["code"] = "1"
    with contextlib.suppress(warren.Error, IsADirectoryError):
        found = method(**(needed | more))
        if hasattr(found, "__next__") or isinstance(found, warren.Stream):
            next(iter(found))
        elif hasattr(found, "__enter__"):
            contextlib.ExitStack().enter_context(found)


def methods(of: object) -> Iterator[tuple[str, Any]]:
    for name in dir(type(of)):
        if not name.startswith("_") and name not in LOCAL and inspect.isfunction(getattr(type(of), name)):
            yield name, getattr(of, name)


def test_every_operation_is_reached_by_a_method_and_every_method_reaches_one(
    listener: Listener, tmp_path: Path
) -> None:
    with Client(listener.url, "wrn_key", retries=0) as client:
        sandbox = client.sandboxes.at("sbx_00000000")
        silent = []
        things = (client, client.sandboxes, client.skills, sandbox, sandbox.files, sandbox.kernels, sandbox.ports)
        for thing in (*things, client.renders, sandbox.egress, sandbox.execution("exe_00000000")):
            for name, method in methods(thing):
                before = len(listener.seen)
                call(
                    method,
                    tmp_path,
                    **({"local": tmp_path / "file"} if thing is sandbox.files and name == "upload" else {}),
                )
                if len(listener.seen) == before:
                    silent.append(f"{type(thing).__name__}.{name}")

    assert silent == []
    assert sorted(unreached(listener.seen)) == sorted(UNUSED)


def unreached(seen: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    wanted = [(each.method, f"/api/v1{each.path}") for each in OPERATIONS] + [("GET", path) for path in SERVICE_PATHS]
    for method, path in wanted:
        pattern = re.sub(r"\{\w+\}", "[^/]+", re.sub(r"\{\w+:path\}", ".*", path))
        verbs = {verb for verb, target in seen if re.fullmatch(pattern, target)}
        # Any method, where it says so; a WebSocket is opened by none of them.
        if method not in verbs and (method != "*" or verbs <= {"WEBSOCKET"}):
            yield method, path
