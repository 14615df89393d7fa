"""A client's own server for calls from inside sandboxes, which remembers what it was asked."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "t0p-s3cret"


class CallbackServer:
    """Answers `{"content": …}` by the tool's name."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.go_on = threading.Event()
        self.waiting = threading.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/tools/call?secret=in-the-address"

    def answer(self, asked: dict[str, Any]) -> tuple[int, bytes]:
        name = asked["name"]
        if name == "fail":
            return 200, b'{"is_error": true, "content": "it went wrong"}'
        if name == "broken":
            return 500, b"oops"
        if name == "away":
            return 302, b""
        if name == "large":
            return 200, b" " * (9 << 20)
        if name == "words":
            return 200, b"not json"
        if name == "slow":
            self.waiting.set()
            self.go_on.wait(30)
        return 200, json.dumps({"content": {"echo": asked["input"]}}).encode()


@contextlib.contextmanager
def calling_back() -> Iterator[CallbackServer]:
    """Run a server for the length of a block."""
    server = CallbackServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            server.asked.append(json.loads(body))
            status, answer = server.answer(server.asked[-1])
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Location", "http://127.0.0.1:1/")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.port = http.server_port
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.go_on.set()
            http.shutdown()
            thread.join()
