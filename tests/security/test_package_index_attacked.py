"""Package indexes that mean harm: what they say is bounded before it is unpacked, read, written or waited for."""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.mirrored import mirroring
from warren.core.concurrency.fair_queue import FairQueue
from warren.core.packages.fetch import Fetcher, Unfetched
from warren.core.packages.pages import Turn
from warren.core.packages.sources import PackageSources, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Say = Callable[[BaseHTTPRequestHandler], None]


@contextlib.contextmanager
def lying(say: Say) -> Iterator[str]:
    """Run an index that gives this answer to every request; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with contextlib.suppress(OSError):
                say(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name is given
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(body: bytes, **headers: str) -> Say:
    def say(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return say


@pytest.mark.parametrize("coding", ["gzip, gzip", "deflate", "br", "gzip,identity"])
def test_what_is_packed_in_what_is_packed_is_not_unpacked(tmp_path: Path, coding: str) -> None:
    """Two kilobytes would become a gigabyte, in one piece and before it could be counted."""
    packed = gzip.compress(gzip.compress(bytes(64 << 20)))

    async def body() -> None:
        with lying(answer(packed, Content_Encoding=coding)) as url:
            async with mirroring(tmp_path, Source(url=url), npm=Source(url=url)) as mirror:
                replies = [await mirror.ask(path) for path in ("/pypi/simple/x/", "/npm/x")]
        assert [reply.status for reply in replies] == [502, 502]
        assert b"was not requested" in replies[0].body

    anyio.run(body)


def test_what_is_too_deep_to_be_written_is_an_answer(tmp_path: Path) -> None:
    version = {"name": "x", "version": "1.0.0", "dependencies": "@", "dist": {"tarball": "x-1.0.0.tgz"}}
    page = json.dumps({"versions": {"1.0.0": version}}).replace('"@"', '{"a":' * 500 + "1" + "}" * 500)

    async def body() -> None:
        with lying(answer(page.encode())) as url:
            async with mirroring(tmp_path, Source(url=url), npm=Source(url=url)) as mirror:
                reply = await mirror.ask("/npm/x")
        assert (reply.status, b"too deep" in reply.body) == (502, True)

    anyio.run(body)


def test_a_page_that_never_ends_is_given_up() -> None:
    """Each byte comes in time, and so does each promise of an answer: only all of it together does not."""
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/promises":
            while not over.wait(0.01):
                handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            return
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        while not over.wait(0.01):
            handler.wfile.write(b" ")

    async def body(url: str) -> None:
        source = Source(url=url)
        fetcher = Fetcher(PackageSources(python=(source,)))
        fetcher.page_s = 0.5
        for path in ("page", "promises"):
            with pytest.raises(Unfetched, match="took longer"):
                await fetcher.get_page(url + path, source, {})
        await fetcher.aclose()

    with lying(drip) as url:
        try:
            anyio.run(body, url)
        finally:
            over.set()


def test_large_pages_are_had_in_turn_and_small_ones_at_once() -> None:
    async def body() -> None:
        gate = FairQueue("pages", slots=1, waiting=8, wait_s=60, on_refused=lambda _why: None)
        first, second, small = (Turn(gate, owner) for owner in ("a", "b", "c"))
        await first.take(2 << 20)
        # Of two indexes that both have a large page of one project, for instance.
        await first.take(2 << 20)
        await small.take(1000)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second.take, 2 << 20)
            await anyio.wait_all_tasks_blocked()
            assert (gate.inside, gate.waiting) == (1, 1)
            first.leave()
        second.leave()
        small.leave()
        assert gate.inside == 0

    anyio.run(body)
