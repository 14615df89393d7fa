"""What a server over standard output is told by something that is no Warren."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import anyio
import pytest

from warren.domain.errors import Overloaded
from warren.mcp_server.answers import explain
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


def test_a_call_that_waits_too_long_for_the_service_is_told_what_for_and_the_search_goes_on(stranger: str) -> None:
    async def story() -> None:
        built = anyio.Event()

        @contextlib.asynccontextmanager
        async def reach() -> AsyncIterator[str]:
            upstream.tell("the image data is being built")
            await built.wait()
            yield stranger

        async def ask_until_answered() -> None:
            while True:
                with contextlib.suppress(Overloaded):
                    await upstream.ask("tools/list", {})

        upstream = Upstream(reach, api_key="wrn_x", session="s", is_kept=True, patience_s=0.05)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(upstream.run)
            for _ in range(2):
                with pytest.raises(Overloaded, match="the image data is being built") as refused:
                    await upstream.ask("tools/call", {})
                assert "Try again in 15 seconds" in explain(refused.value)
            built.set()
            with anyio.fail_after(60), pytest.raises(NotUnderstood):
                await ask_until_answered()
            upstream.end()

    anyio.run(story)
