"""An issuer of tokens: a real server of its key set that can be made to fail."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Issuer:
    """A real server of a key set, that can be told to fail."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                issuer.may_answer.wait(30)
                self.send_response(issuer.status)
                for name, value in issuer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.wfile.write(issuer.body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"


@contextlib.contextmanager
def issuing(body: bytes) -> Iterator[Issuer]:
    """Publish a key set for a while."""
    issuer = Issuer(body)
    thread = threading.Thread(target=issuer.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield issuer
    finally:
        issuer.may_answer.set()
        issuer.server.shutdown()
        thread.join()
        issuer.server.server_close()
