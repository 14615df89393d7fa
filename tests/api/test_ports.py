"""Servers inside sandboxes, through the service: what passes, what does not, and what is said when nothing does."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.inside import Inside
from api.served import DEADLINE_S, Served, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.settings import Settings


@pytest.fixture(scope="module")
def inside(served: Served) -> Iterator[Inside]:
    with served.client("ann") as ann:
        made = ann.post("/sandboxes", json={}).json()["id"]
        yield Inside(ann, made)
        ann.delete(f"/sandboxes/{made}")


def heard(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    said: dict[str, Any] = response.json()
    said["headers"] = {name.lower(): value for name, value in said["headers"]}
    return said


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_any_method_passes_with_its_address_and_body(inside: Inside, method: str) -> None:
    said = heard(inside.ask("/echo?a=1&a=%20%2F", method, content=b"hello" if method != "GET" else None))

    assert said["method"] == method
    assert said["target"] == "/echo?a=1&a=%20%2F"
    assert said["body"] == ("hello" if method != "GET" else "")


def test_a_head_is_answered_without_a_body(inside: Inside) -> None:
    answer = inside.ask("/echo", "HEAD")

    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) > 10
    assert answer.content == b""


def test_a_path_arrives_byte_for_byte(served: Served, inside: Inside) -> None:
    path = f"/api/v1{inside.path}/echo?%C3%28;../%2e%2e/x"
    answer = served.send_raw(
        f"GET {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {served.keys['ann']}\r\nConnection: close\r\n\r\n".encode()
    )

    assert json.loads(answer.partition(b"\r\n\r\n")[2])["target"] == "/echo?%C3%28;../%2e%2e/x"


def test_the_server_is_told_where_it_is(inside: Inside) -> None:
    said = heard(inside.ask("/echo", headers={"X-Forwarded-Host": "evil", "X-Forwarded-For": "1.2.3.4"}))

    assert said["headers"]["host"] == f"localhost:{inside.port}"
    assert said["headers"]["x-forwarded-prefix"] == f"/api/v1{inside.path}"
    assert said["headers"]["x-forwarded-host"] == inside.client.base_url.netloc.decode()
    assert said["headers"]["x-forwarded-proto"] == "http"
    assert "x-forwarded-for" not in said["headers"]


def test_a_large_upload_and_a_large_download_are_streamed(inside: Inside) -> None:
    size = 32 << 20
    pieces = (bytes(1 << 20) for _ in range(32))

    assert heard(inside.ask("/echo", "POST", content=pieces))["size"] == size
    assert heard(inside.ask("/echo", "POST", content=bytes(size)))["size"] == size
    with inside.client.stream("GET", f"{inside.path}/large") as answer:
        assert sum(map(len, answer.iter_bytes())) == 64 << 20


def test_both_sides_talk_at_once(served: Served, inside: Inside) -> None:
    head = (
        f"POST /api/v1{inside.path}/talk HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.keys['ann']}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.port), timeout=DEADLINE_S) as connection:
        connection.sendall(head.encode() + b"3\r\none\r\n")
        read_until(connection, b"heard one")
        connection.sendall(b"3\r\ntwo\r\n")
        read_until(connection, b"heard two")
        connection.sendall(b"0\r\n\r\n")
        read_until(connection, b"0\r\n\r\n")


def read_until(connection: socket.socket, wanted: bytes) -> None:
    received = b""
    while wanted not in received:
        piece = connection.recv(65_536)
        assert piece, received
        received += piece


def test_events_arrive_as_they_are_sent(inside: Inside) -> None:
    with inside.client.stream("GET", f"{inside.path}/events") as answer:
        lines = answer.iter_lines()
        first = next(lines)
        assert inside.ask("/go").status_code == 204
        rest = list(lines)

    assert first == "data: first"
    assert "data: second" in rest
    assert answer.headers["x-accel-buffering"] == "no"


def test_a_body_that_is_not_wanted_is_not_waited_for(inside: Inside) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield bytes(65_536)

    answer = None
    try:
        answer = inside.ask("/refuse", "POST", content=endless())
    except httpx.WriteError:
        """The connection was closed in the middle of the upload, as HTTP/1.1 does it."""

    assert answer is None or (answer.status_code, answer.content) == (413, b"no!")


def test_a_client_that_asks_first_is_told_to_continue_by_the_server(inside: Inside) -> None:
    said = heard(inside.ask("/echo", "PUT", content=b"x" * 100, headers={"Expect": "100-continue"}))

    assert said["size"] == 100
    assert said["headers"]["expect"] == "100-continue"


def test_nothing_listens_is_said_in_one_sentence(inside: Inside, sandbox: str) -> None:
    answer = inside.client.get(f"/sandboxes/{sandbox}/ports/9/")

    assert answer.status_code == 502
    assert answer.json()["code"] == "unreachable"
    assert answer.json()["detail"] == f"nothing listens on port 9 of {sandbox}: start a server there"


@pytest.mark.parametrize("port", ["0", "65536", "-1", "08", "x", "80:80"])
def test_what_is_no_port_is_not_found(inside: Inside, port: str) -> None:
    assert inside.client.get(f"/sandboxes/{inside.sandbox}/ports/{port}/").status_code == 404


def test_the_first_page_is_one_slash_further(inside: Inside) -> None:
    answer = inside.ask("?a=1")

    assert answer.status_code == 308
    assert answer.next_request is not None
    assert answer.next_request.url.path == f"/api/v1{inside.path}/"
    assert answer.next_request.url.query == b"a=1"


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        ("/next?x=1", "{own}/next?x=1"),
        ("http://127.0.0.1:{port}/next", "{own}/next"),
        ("http://localhost:{port}", "{own}/"),
        ("http://localhost:{port}?x", "{own}/?x"),
        ("{own}/next", "{own}/next"),
        ("next", "next"),
        ("//elsewhere.example/", "//elsewhere.example/"),
        ("http://127.0.0.1:1/next", "http://127.0.0.1:1/next"),
        ("https://elsewhere.example/a", "https://elsewhere.example/a"),
    ],
)
def test_a_redirect_to_the_server_itself_leads_through_the_service(inside: Inside, said: str, passed: str) -> None:
    own = f"/api/v1{inside.path}"
    location = said.format(port=inside.port, own=own)
    raw = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()

    answer = inside.ask(inside.say(raw))

    assert (answer.status_code, answer.headers["location"]) == (302, passed.format(own=own))


def test_an_unchanged_page_has_no_body(inside: Inside) -> None:
    answer = inside.ask(inside.say(b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\nContent-Length: 100\r\n\r\n'))

    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", '"1"')


def test_a_server_that_ends_in_the_middle_gives_no_whole_answer(inside: Inside) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        inside.ask("/reset")
    with pytest.raises(httpx.RemoteProtocolError):
        inside.ask(inside.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"))


def test_a_client_that_leaves_ends_the_connection_inside(served: Served, inside: Inside) -> None:
    """Sixty-four at once are all there may be, so a hundred one after another show that each has ended."""
    head = f"GET /api/v1{inside.path}/hang HTTP/1.1\r\nHost: x\r\nX-API-Key: {served.keys['ann']}\r\n\r\n"
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", served.port), timeout=DEADLINE_S) as connection:
            connection.sendall(head.encode())

    assert inside.ask("/go").status_code == 204


def test_a_stopped_sandbox_is_resumed(inside: Inside, sandbox: str) -> None:
    inside.client.post(f"/sandboxes/{sandbox}/stop")

    answer = inside.client.get(f"/sandboxes/{sandbox}/ports/9/")

    assert answer.status_code == 502
    assert inside.client.get(f"/sandboxes/{sandbox}").json()["status"] == "running"


def test_only_who_may_run_things_reaches_a_port(served: Served, inside: Inside) -> None:
    expected = {"anonymous": 401, "rita": 403, "bob": 404, "adam": 403}
    for who, status in expected.items():
        with served.client(who) as client:
            assert client.get(f"{inside.path}/echo").status_code == status, who


def test_the_record_says_who_used_a_port_but_not_every_request(served: Served, sandbox: str) -> None:
    with served.client("ann") as ann, served.client("adam") as adam:
        own = Inside(ann, sandbox)
        for _ in range(20):
            own.ask("/echo?secret-thing")

        def look() -> list[Any]:
            found = adam.get("/audit", params={"sandbox_id": sandbox, "limit": 100}).json()["items"]
            return [each for each in found if each["action"].startswith("port.")]

        entries = wait_for(look)

    assert [each["action"] for each in entries] == ["port.connect"]
    assert entries[0]["details"] == {"port": own.port, "method": "GET"}
    assert entries[0]["subject"] == "ann"


def test_a_server_that_does_not_answer_is_given_up(make_settings: Callable[..., Settings]) -> None:
    """But not while a body still goes in: then it has nothing to answer yet."""

    def slowly() -> Iterator[bytes]:
        for _ in range(25):
            yield b"x"
            # As long as a slow client takes: no event says so.
            time.sleep(0.1)

    served = Served(make_settings("bare", serve={"port_answer_s": 2}))
    served.start()
    try:
        with served.client("ann") as ann:
            sandbox = ann.post("/sandboxes", json={}).json()["id"]
            inside = Inside(ann, sandbox)
            answer = inside.ask("/hang")
            assert heard(inside.ask("/echo", "POST", content=slowly()))["size"] == 25
            ann.delete(f"/sandboxes/{sandbox}")
    finally:
        served.stop()

    assert answer.status_code == 502
    assert answer.json()["detail"] == f"the server on port {inside.port} did not answer in 2 s"


def test_what_passes_keeps_a_sandbox_running_and_an_open_connection_does_not(served: Served) -> None:
    """Of a server that no execution waits for: those are use of their own."""
    with served.client("ann") as ann:
        sandbox = ann.post("/sandboxes", json={"idle_timeout_seconds": 3}).json()["id"]
        inside = Inside(ann, sandbox, is_execution=False)
        until = time.monotonic() + 4.5
        while time.monotonic() < until:
            assert inside.ask("/echo").status_code == 200
        lines: list[str] = []
        with contextlib.suppress(httpx.RemoteProtocolError), ann.stream("GET", f"{inside.path}/events") as answer:
            lines.extend(answer.iter_lines())
        wait_for(lambda: ann.get(f"/sandboxes/{sandbox}").json()["status"] == "stopped")
        ann.delete(f"/sandboxes/{sandbox}")

    assert "data: second" not in lines
