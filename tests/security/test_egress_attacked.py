"""Attacks on egress: echoing servers, expensive requests, and resources that are not released."""

from __future__ import annotations

import base64
import html
import json
import logging
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio
import pytest

from security.egress_world import DEADLINE_S, PUBLIC, World, open_world, read_request
from warren.core.egress.control import NewSecret
from warren.core.egress.internal_hosts import InnerAnswer
from warren.core.egress.secret_broker import Broker, Cleaner, spell
from warren.core.sandboxes.changes import SandboxChanges
from warren.domain.egress import PACKAGES_HOST, Brokered, Egress
from warren.domain.values import ExecKind, ExecRequest, new_id

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from warren.core.egress.internal_hosts import InnerRequest

pytestmark = pytest.mark.root

VALUE = 'sk"very\\secret&<012>/+ 6789'
INNER = "inner.example"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[World]:
    del python_image
    with open_world(tmp_path_factory.mktemp("world"), images_dir) as world:
        world.names |= {"api.example": [(PUBLIC,)]}
        yield world


@pytest.fixture
def sandbox(world: World) -> str:
    return world.create("rules", "api.example", INNER)


def give(world: World, sandbox: str, value: str = VALUE, name: str = "KEY") -> str:
    new = NewSecret(name=name, value=value, hosts=("api.example",))
    return str(world.portal.call(world.service.egress.create_secret, world.caller, sandbox, new).placeholder)


def repeat(connection: socket.socket) -> None:
    """Answer with what was sent, in the way that the path asks for."""
    while head := read_request(connection):
        lines = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        said = next((lines[name] for name in (b"X-Key", b"Authorization") if name in lines), b"")
        status, before, more, body = b"200 OK", b"", b"", head
        match head.split(b" ")[1]:
            case b"/reason":
                status = b"200 " + said
            case b"/early":
                before = b"HTTP/1.1 103 Early Hints\r\nLink: %s\r\n\r\n" % said
            case b"/json":
                body = json.dumps({"key": said.decode()}).encode()
            case b"/page":
                body = html.escape(said.decode()).encode()
            case b"/address":
                more = b"Location: https://elsewhere.example/?key=%s\r\n" % quote(said.decode()).encode()
            case b"/charset":
                # As many servers say by mistake; it is not encoded at all.
                more = b"Content-Encoding: UTF-8\r\n"
        if b"Range" in lines:
            status, body = b"206 Partial Content", said[:9]
        connection.sendall(before + b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, more, len(body), body))


def ask(world: World, sandbox: str, path: str, *lines: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in ("Host: api.example", "Connection: close", *lines))
    return world.say(sandbox, f"GET http://api.example{path} HTTP/1.1\r\n{head}\r\n".encode())


def test_what_an_honest_server_repeats_holds_no_value_however_it_is_written(world: World, sandbox: str) -> None:
    placeholder = give(world, sandbox)
    basic = base64.b64encode(f"user:{placeholder}".encode()).decode()

    with world.serve(world.secure(repeat, "api.example"), port=443):
        told = {
            path: ask(world, sandbox, path, f"X-Key: {placeholder}")
            for path in ("/plain", "/reason", "/early", "/json", "/page", "/address", "/charset")
        }
        told["basic"] = ask(world, sandbox, "/plain", f"Authorization: Basic {basic}")
        told["part"] = ask(world, sandbox, "/plain", f"X-Key: {placeholder}", "Range: bytes=0-8")
        free = ask(world, sandbox, "/plain", "X-Key: mine-own-words", "Range: bytes=0-8")

    assert {what for what, said in told.items() if not said.startswith(b"HTTP/1.1 ")} == set()
    assert {(what, way) for what, said in told.items() for way in spell(VALUE.encode()) if way in said} == set()
    assert VALUE[:9].encode() not in told["part"]
    assert {what for what, said in told.items() if placeholder.encode() not in said} <= {"basic"}
    # The program reads back what it sent; answers without a secret are not changed.
    assert basic.encode() in told["basic"]
    assert b"206 Partial Content" in free


def test_a_value_of_which_another_is_a_part_leaves_nothing_behind() -> None:
    cleaner = Cleaner([(b"abcdefgh", b"<1>"), (b"abcdefgh-and-more", b"<2>")])

    assert cleaner.feed(b"abcdefgh-and-more") + cleaner.end() == b"<2>"


def test_what_is_surely_no_value_is_not_held_back() -> None:
    """Events of a stream come one by one, and a waiting reader gets the whole event."""
    cleaner = Cleaner([(b"0123456789", b"*")])

    assert cleaner.feed(b"data: one\n\n") == b"data: one\n\n"
    assert cleaner.feed(b"data: 01234") == b"data: "
    assert cleaner.feed(b"x") == b"01234x"


def test_what_stands_for_a_value_is_not_held_back_when_it_ends_as_a_value_begins() -> None:
    cleaner = Cleaner([(b"c2l0", b"placeholder-abc")])

    assert cleaner.feed(b"data: c2l0") == b"data: placeholder-abc"
    assert cleaner.feed(b"c2l0") == b"placeholder-abc"


def test_a_value_is_not_released_because_a_program_wrote_text_that_ends_as_it_begins() -> None:
    """The program's text is where its own header is echoed, and where the start of the value is echoed."""
    filled, written = b"QUtJQXh5", b"c2xvdEFLSUE="
    cleaner = Cleaner([(b"AKIAsecret", b"wsec_0"), (filled, written + b"AKIA")])

    assert b"secret" not in cleaner.feed(written + b"AKIA") + cleaner.feed(b"secret") + cleaner.end()


def test_values_that_overlap_in_an_answer_leave_nothing_of_either() -> None:
    """Two headers that a server joins: the program chose the second so that it ends as the value begins."""
    cleaner = Cleaner([(b"xoxbsecret", b"wsec_0"), (b"QUJDxoxb", b"mine")])

    assert cleaner.feed(b"<QUJDxoxbsecret>") + cleaner.end() == b"<mine>"
    assert cleaner.feed(b"<QUJDxoxb") + cleaner.feed(b"sec") + cleaner.feed(b"ret>") + cleaner.end() == b"<mine>"


def test_a_secret_in_basic_credentials_is_found_however_an_honest_server_writes_them() -> None:
    """The program adds bytes around the placeholder, so that neighbours and alignment are its choice."""
    value = ">>>???>>>-the-secret-~~~"
    brokered = Brokered(
        sandbox_id="sbx", name="KEY", placeholder="wsec_0", hosts=("a.example",), value=value, created_at=0.0
    )
    for before in ("", "u:", "us:", "use:"):
        broker = Broker((brokered,))
        written = base64.b64encode(f"{before}wsec_0".encode())
        (_, sent), _ = broker.fill([(b"Authorization", b"Basic " + written)])
        filled = sent.removeprefix(b"Basic ").decode()
        lower = filled.replace("+", "%2b").replace("/", "%2f").replace("=", "%3d")
        for way in (filled, filled.replace("/", "\\/"), quote(filled, safe=""), lower):
            for size in (1, 2, 7, 1000):
                cleaner = broker.cleaner()
                assert cleaner is not None
                pieces = [way.encode()[at : at + size] for at in range(0, len(way), size)]
                told = b"".join(cleaner.feed(piece) for piece in pieces) + cleaner.end()
                assert told == written


def test_a_request_does_not_become_many_times_as_long_with_values_in_it(world: World, sandbox: str) -> None:
    """A placeholder has 37 bytes and a value up to 8192: a head of 64 KiB would become one of 14 MiB."""
    placeholder = give(world, sandbox, "x" * 8192, "BIG")

    with world.serve(world.secure(repeat, "api.example"), port=443):
        told = ask(world, sandbox, "/plain", *(f"X-{at}: {placeholder * 20}" for at in range(60)))
        once = ask(world, sandbox, "/plain", f"X-Key: {placeholder}")

    assert told.startswith(b"HTTP/1.1 431 ")
    assert b"x" * 100 not in told
    assert once.startswith(b"HTTP/1.1 200 ")


def test_what_is_no_request_is_an_answer_and_no_error_of_ours(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    sandbox = world.create("packages")
    host = f"Host: {PACKAGES_HOST}\r\n"

    chunk = world.say(
        sandbox, f"POST http://{PACKAGES_HOST}/ HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode()
    )
    coded = world.get(sandbox, f"http://{PACKAGES_HOST}/pypi/simple/%ff/")

    assert chunk.startswith(b"HTTP/1.1 400 ")
    assert coded[0] == 404
    assert "egress.failed" not in caplog.text


class Held:
    """A body that notes when it is let go of."""

    def __init__(self) -> None:
        self.closed = anyio.Event()

    def __aiter__(self) -> Held:
        return self

    async def __anext__(self) -> bytes:
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed.set()


_DEAF = """
import signal, socket
connection = socket.create_connection(("127.0.0.1", 3128), 20)
connection.sendall(b"GET http://inner.example/ HTTP/1.1\\r\\nHost: inner.example\\r\\n\\r\\n")
signal.pause()
"""


def test_a_body_that_is_never_read_is_released(world: World, sandbox: str) -> None:
    """Cut off in the head of an answer: its body was not begun, and holds a file all the same."""

    async def scenario() -> None:
        held, asked = Held(), anyio.Event()

        async def answer(request: InnerRequest) -> InnerAnswer:
            del request
            asked.set()
            # More than the program's end holds: sending the head takes until the program reads.
            return InnerAnswer(status=200, headers={"x": "x" * (16 << 20)}, body=held)

        inner: dict[str, Any] = world.service.egress_proxy.inner
        inner[INNER] = answer
        request = ExecRequest(id=new_id("exe"), kind=ExecKind.SCRIPT, code=_DEAF, timeout_s=DEADLINE_S)
        try:
            with anyio.fail_after(DEADLINE_S):
                async with (
                    world.service.sandboxes.use(world.caller, sandbox) as place,
                    anyio.create_task_group() as tasks,
                ):
                    tasks.start_soon(place.agent.run, request)
                    await asked.wait()
                    await world.service.sandboxes.update(world.caller, sandbox, SandboxChanges(egress=Egress()))
                    await held.closed.wait()
                    tasks.cancel_scope.cancel()
        finally:
            del inner[INNER]

    world.portal.call(scenario)


_ASKS_AND_LEAVES = """
import socket
connection = socket.create_connection(("127.0.0.1", 3128), 20)
connection.sendall(b"GET http://api.example/ HTTP/1.1\\r\\nHost: api.example\\r\\n\\r\\n" * 3000)
"""


def test_what_a_program_asked_for_in_advance_is_not_asked_when_it_has_left(world: World) -> None:
    sandbox = world.create("rules", "api.example")
    has_left, asked = threading.Event(), []

    def wait(connection: socket.socket) -> None:
        while read_request(connection):
            asked.append(1)
            has_left.wait(DEADLINE_S)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    with world.serve(wait):
        world.run(sandbox, _ASKS_AND_LEAVES)
        has_left.set()
        world.records(sandbox)

    assert len(asked) < 300


def test_a_caller_told_to_wait_has_to_ask_again(world: World) -> None:
    sandbox = world.create("rules", "api.example")
    ask = b"GET http://bad.example/ HTTP/1.1\r\nHost: bad.example\r\n\r\n"

    told = world.say(sandbox, ask * 1000)

    assert told.count(b"HTTP/1.1 429 ") == 1
    assert b"Connection: close" in told.rpartition(b"HTTP/1.1 429 ")[2]
