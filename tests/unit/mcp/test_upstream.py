"""What a server over standard output is told by something that is no Warren."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import anyio
import pytest

from warren.mcp_server.upstream import Upstream
from warren.sdk.failures import NotUnderstood

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class _Stranger(BaseHTTPRequestHandler):
    """Answers everything with a page."""

    body = b"<h1>hello</h1>"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


@pytest.fixture(params=[b"<h1>hello</h1>", b"[]", b"\xff"])
def stranger(request: pytest.FixtureRequest) -> Iterator[str]:
    handler = type("Handler", (_Stranger,), {"body": request.param})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_address_of_something_else_is_said_to_be_one(stranger: str) -> None:
    @contextlib.asynccontextmanager
    async def reach() -> AsyncIterator[str]:
        yield stranger

    async def story() -> None:
        upstream = Upstream(reach, api_key="wrn_x", session="s", is_kept=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(upstream.run)
            with anyio.fail_after(60), pytest.raises(NotUnderstood, match="is no Warren: check the address"):
                await upstream.ask("tools/list", {})
            upstream.end()

    anyio.run(story)
