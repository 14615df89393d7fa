"""A server that answers what it is told to, one request after the other, and notes what it was asked."""

from __future__ import annotations

import http.server
import json
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing import Self

SANDBOX: dict[str, Any] = {
    "id": "sbx_00000000",
    "status": "running",
    "image": "python",
    "image_digest": "",
    "engine": "bare",
    "owner": {"tenant": "default", "subject": "ann"},
    "workspace_path": "/workspace",
    "storage": "persistent",
    **dict.fromkeys(("memory_mb", "cpu", "pids", "disk_mb", "checkpoint_mb", "checkpoints", "command_count"), 1),
    "network_enabled": False,
    **dict.fromkeys(("idle_timeout_seconds", "max_lifetime_seconds", "session_key", "expires_at", "reason")),
    "metadata": {},
    **dict.fromkeys(("created_at", "last_activity_at", "changed_at"), "2026-01-01T00:00:00.000+00:00"),
}

RENDER: dict[str, Any] = {
    "id": "rnd_00000000",
    "status": "running",
    "version": "v2",
    "name": "deck",
    "slides": 0,
    "degraded": [],
    **dict.fromkeys(("reason", "error", "finished_at")),
    "owner": {"tenant": "default", "subject": "ann"},
    **dict.fromkeys(("created_at", "expires_at"), "2026-01-01T00:00:00.000+00:00"),
}


class Answer(NamedTuple):
    """What to answer; the status 0 is to hang up."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


class Asked(NamedTuple):
    """What came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


HANG_UP = Answer(0)


def problem(status: int, code: str, *, retry_after: int | None = None, retryable: bool = True) -> Answer:
    """Build the answer of a service that cannot, or will not."""
    body = {"code": code, "status": status, "detail": "not now", "retryable": retryable, "request_id": "req_1"}
    return Answer(status, body, {} if retry_after is None else {"Retry-After": str(retry_after)})


class ScriptedServer:
    """Serves its answers in order."""

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[Asked] = []
        left = list(answers)
        asked = self.asked

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                asked.append(Asked(self.command, self.path, dict(self.headers), self._read()))
                answer = left.pop(0)
                if not answer.status:
                    self.close_connection = True
                    return
                body = b"" if answer.body is None else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                for name, value in {**answer.headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815 - the library's names

            def _read(self) -> bytes:
                if "Content-Length" in self.headers:
                    return self.rfile.read(int(self.headers["Content-Length"]))
                body = b""
                while "Transfer-Encoding" in self.headers and (size := int(self.rfile.readline(), 16)):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                return body

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
