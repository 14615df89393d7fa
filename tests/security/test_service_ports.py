"""The service against servers in its sandboxes, and against forged links to them.

A sandbox writes every byte of what its server answers; none of it may reach another answer, another page of ours, or
the credentials of its viewer.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from api.inside import Inside, start_server
from e2e.serving import DEADLINE_S, create, wait_until
from security.attacked import Attacked, attacked, read_all

if TYPE_CHECKING:
    from collections.abc import Iterator

OK = b"HTTP/1.1 200 OK\r\n"

NO_HTTP = {
    "nothing": b"",
    "noise": bytes(range(256)),
    "another protocol": b"SSH-2.0-OpenSSH_9.9\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "a status of letters": b"HTTP/1.1 abc OK\r\n\r\n",
    "a status beyond all": b"HTTP/1.1 999999 OK\r\n\r\n",
    "a head without an end": OK + b"X: " + b"y" * 200_000,
    "a head of 100 kB": OK + b"X: " + b"y" * 100_000 + b"\r\nContent-Length: 0\r\n\r\n",
    "a thousand headers": OK + b"X: y\r\n" * 5000 + b"\r\n",
    "more headers than we take": OK + b"X: y\r\n" * 300 + b"Content-Length: 0\r\n\r\n",
    "a status that we cannot pass on": b"HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n",
    "a bell in a header": OK + b"X: \x07\r\nContent-Length: 0\r\n\r\n",
    "a folded header": OK + b"X: y\r\n\x01z: 1\r\n\r\n",
    "a NUL in a header": OK + b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
    "a space before the colon": OK + b"X : a\r\nContent-Length: 0\r\n\r\n",
    "two lengths": OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a negative length": OK + b"Content-Length: -1\r\n\r\n",
    "a length of letters": OK + b"Content-Length: 1x\r\n\r\na",
    "an unknown coding": OK + b"Transfer-Encoding: rot13\r\n\r\nabc",
    "two codings": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "another protocol, as if asked for": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
    "promises only": b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
    "the next version": b"HTTP/2.0 200 OK\r\n\r\n",
}


@pytest.fixture(autouse=True)
def unharmed() -> None:
    """No wall of a sandbox is attacked here: the service behind it is."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[Attacked]:
    assert python_image is not None
    with attacked(tmp_path_factory.mktemp("ports"), images_dir) as target:
        yield target


@pytest.fixture(scope="module")
def inside(target: Attacked) -> Iterator[Inside]:
    with target.client("ann") as ann:
        sandbox = create(ann)
        yield Inside(ann, sandbox)
        ann.delete(f"/sandboxes/{sandbox}")


@pytest.fixture(scope="module")
def agent(inside: Inside) -> str:
    made = inside.client.post(f"/sandboxes/{inside.sandbox}/links", json={"kind": "port", "port": inside.port})
    url: str = made.json()["url"]
    return url.rstrip("/")


@pytest.fixture
def anybody(target: Attacked) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=target.url, timeout=DEADLINE_S, trust_env=False) as client:
        yield client


def answer_to(inside: Inside, anybody: httpx.Client, agent: str, raw: bytes, **options: Any) -> httpx.Response:
    return anybody.get(agent + inside.say(raw), **options)


@pytest.mark.parametrize("raw", NO_HTTP.values(), ids=NO_HTTP.keys())
def test_what_is_not_http_is_one_sentence(inside: Inside, raw: bytes) -> None:
    answer = inside.ask(inside.say(raw)) if len(raw) < 4000 else inside.ask("/raw?" + generated(inside, raw))

    assert answer.status_code == 502
    assert answer.json()["code"] == "unreachable"
    assert answer.json()["detail"].isprintable()


def generated(inside: Inside, raw: bytes) -> str:
    """Have long answers read from a file: an address has not room for them."""
    inside.client.put(f"/sandboxes/{inside.sandbox}/files/answer.bin", content=raw)
    return "file"


def test_a_second_answer_on_the_connection_reaches_no_client(inside: Inside) -> None:
    """The classic: what follows the first answer would be the answer to the next request on the same connection."""
    smuggled = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen"
    for first in (
        OK + b"Content-Length: 2\r\n\r\nok",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    ):
        assert b"stolen" not in inside.ask(inside.say(first + smuggled)).content
        assert inside.ask("/echo").json()["method"] == "GET"
    head = inside.ask(inside.say(OK + b"Content-Length: 44\r\n\r\n" + smuggled), "HEAD")
    assert head.content == b""
    assert inside.ask("/echo").json()["method"] == "GET"


def test_both_framings_at_once_are_one(inside: Inside) -> None:
    raw = OK + b"Content-Length: 100\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"

    answer = inside.ask(inside.say(raw))

    assert answer.content == b"ok"
    assert "content-length" not in answer.headers


def test_a_header_splits_no_answer(target: Attacked, inside: Inside) -> None:
    raw = b"HTTP/1.1 302 Found\r\nLocation: /x%0d%0aX-Evil: 1\r\nX-A: b\rX-Evil: 1\r\nContent-Length: 0\r\n\r\n"

    with target.connect() as connection:
        connection.sendall(target.head("ann", "GET", inside.path + inside.say(raw), "Connection: close") + b"\r\n")
        answer = read_all(connection)

    assert answer.startswith(b"HTTP/1.1 ")
    assert b"\nx-evil" not in answer.lower()
    assert b"\rx-evil" not in answer.lower()


def test_requests_are_framed_anew(target: Attacked, inside: Inside) -> None:
    """A chunked body whose trailer and extensions would be a request of their own is one body inside."""
    body = b"5;x=GET\r\nhello\r\n0\r\nX-Evil: GET /go HTTP/1.1\r\n\r\n"
    head = target.head("ann", "POST", inside.path + "/echo", "Transfer-Encoding: chunked", "Connection: close")

    with target.connect() as connection:
        connection.sendall(head + b"\r\n" + body)
        said = json.loads(read_all(connection).partition(b"\r\n\r\n")[2])

    assert said["body"] == "hello"
    assert not any(name.lower() == "x-evil" for name, _ in said["headers"])


def test_no_credential_of_ours_goes_in(target: Attacked, inside: Inside, anybody: httpx.Client, agent: str) -> None:
    key = target.secrets["ann"]
    ways: list[dict[str, str]] = [
        {"Authorization": f"Bearer {key}"},
        {"Authorization": f"bearer   {key}"},
        {"X-API-Key": key},
        {"Authorization": key},
        {"Authorization": f"Bearer {key}", "Connection": "close, authorization"},
        {"Cookie": f"session={key}", "X-API-Key": key},
        {"Referer": f"{target.url}{agent}/x"},
        {"Proxy-Authorization": f"Bearer {key}"},
    ]
    for headers in ways:
        said = anybody.get(f"{agent}/echo", headers=headers).text
        assert key not in said, headers
        assert "referer" not in said.lower()
    said = inside.ask("/echo", headers={"Cookie": f"k={key}"}).text
    assert key not in said


def test_no_page_has_a_key_in_its_address(target: Attacked, inside: Inside, anybody: httpx.Client, agent: str) -> None:
    """Its script could read it there, wherever the page has its origin."""
    key = target.secrets["ann"]
    for path in (f"/api/v1/sandboxes/{inside.sandbox}/ports/{inside.port}/", f"{agent}/"):
        answer = anybody.get(f"/k/{key}{path}")
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert key not in answer.text


def test_a_server_inside_gets_what_is_meant_for_it(inside: Inside, anybody: httpx.Client, agent: str) -> None:
    def sent(headers: dict[str, str], path: str = f"{agent}/echo") -> Any:
        client = anybody if path.startswith("/s/") else inside.client
        return dict(client.get(path, headers=headers).json()["headers"]).get("authorization")

    assert sent({"Authorization": "Basic YTpi"}) == "Basic YTpi"
    assert sent({"Authorization": "Bearer of-the-application"}) == "Bearer of-the-application"
    assert sent({"X-Warren-Authorization": "Bearer x"}, f"{inside.path}/echo") == "Bearer x"
    assert sent({}, f"{inside.path}/echo") is None


def test_pages_have_an_origin_of_their_own(inside: Inside, anybody: httpx.Client, agent: str) -> None:
    raw = OK + (
        b"Content-Type: text/html\r\nContent-Security-Policy: default-src *\r\nReferrer-Policy: unsafe-url\r\n"
        b"X-Content-Type-Options: sniff\r\nContent-Length: 8\r\n\r\n<script>"
    )
    for answer in (answer_to(inside, anybody, agent, raw), inside.ask(inside.say(raw))):
        policies = answer.headers.get_list("content-security-policy")
        assert any(each.startswith("sandbox ") and "allow-same-origin" not in each for each in policies)
        assert answer.headers.get_list("referrer-policy") == ["no-referrer"]
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


@pytest.mark.parametrize(
    "header",
    [
        'Clear-Site-Data: "*"',
        "Strict-Transport-Security: max-age=31536000; includeSubDomains",
        'Alt-Svc: h3="evil.example:443"',
        'NEL: {"report_to":"x","max_age":9}',
        'Report-To: {"group":"x","max_age":9,"endpoints":[{"url":"https://evil.example"}]}',
        'Reporting-Endpoints: x="https://evil.example"',
        "Service-Worker-Allowed: /",
        "X-Accel-Redirect: /etc/passwd",
        "X-Sendfile: /etc/passwd",
        "Proxy-Authenticate: Basic",
        "Keep-Alive: timeout=999",
        "Warren-Complete: true",
        "X-Request-ID: forged",
    ],
)
def test_nothing_is_said_for_all_of_our_host(inside: Inside, anybody: httpx.Client, agent: str, header: str) -> None:
    raw = OK + header.encode() + b"\r\nContent-Length: 0\r\n\r\n"

    answer = answer_to(inside, anybody, agent, raw)

    name, _, value = header.partition(": ")
    assert value not in answer.headers.get_list(name)


@pytest.mark.parametrize(
    "cookie",
    [
        "a=1",
        "a=1; Path=/",
        "a=1; Domain=127.0.0.1; Path=/api/v1",
        "a=1; path=/s/; PATH=/../..",
        "__Host-a=1; Path=/; Secure",
        "warren-port-a=1; Path=/x",
    ],
)
def test_a_cookie_stays_with_its_server(inside: Inside, anybody: httpx.Client, agent: str, cookie: str) -> None:
    raw = OK + f"Set-Cookie: {cookie}\r\nContent-Length: 0\r\n\r\n".encode()

    (set_cookie,) = answer_to(inside, anybody, agent, raw).headers.get_list("set-cookie")

    name, _, rest = set_cookie.partition("=")
    paths = [each.strip() for each in rest.split(";") if each.strip().lower().startswith("path=")]
    assert name.startswith("warren-port-")
    assert len(paths) == 1
    assert paths[0].startswith(f"Path={agent}/")
    assert "domain" not in set_cookie.lower()


def test_only_its_own_cookies_reach_a_server(anybody: httpx.Client, agent: str) -> None:
    sent = {"Cookie": "session=ours; warren-port-a=1; warren-port-b=2; other=x"}

    said = dict(anybody.get(f"{agent}/echo", headers=sent).json()["headers"])

    assert said["cookie"] == "a=1; b=2"


def test_no_service_worker_is_served(inside: Inside, anybody: httpx.Client, agent: str) -> None:
    assert anybody.get(f"{agent}/echo", headers={"Service-Worker": "script"}).status_code == 403
    assert inside.ask("/echo", headers={"Service-Worker": "script"}).status_code == 403


def test_pages_without_an_origin_may_ask_their_own_server_only_by_its_link(
    inside: Inside, anybody: httpx.Client, agent: str
) -> None:
    own = anybody.get(f"{agent}/echo", headers={"Origin": "null"})
    foreign = anybody.get(f"{agent}/echo", headers={"Origin": "https://evil.example"})
    keyed = inside.ask("/echo", headers={"Origin": "null"})
    asked = {"Origin": "null", "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x-own"}
    preflight = anybody.options(f"{agent}/echo", headers=asked)

    assert own.headers["access-control-allow-origin"] == "null"
    assert "access-control-allow-origin" not in foreign.headers
    assert "access-control-allow-origin" not in keyed.headers
    assert dict(own.json()["headers"])["origin"] == f"http://localhost:{inside.port}"
    assert dict(foreign.json()["headers"])["origin"] == "https://evil.example"
    assert (preflight.status_code, preflight.headers["access-control-allow-headers"]) == (204, "x-own")


@pytest.mark.parametrize("method", ["CONNECT", "TRACE"])
def test_methods_that_are_not_for_servers_do_not_pass(target: Attacked, inside: Inside, method: str) -> None:
    answer = target.send_raw(target.head("ann", method, f"{inside.path}/echo", "Connection: close") + b"\r\n")

    assert answer.split(b" ")[1] in {b"400", b"404", b"405"}


def test_one_sandbox_gets_so_many_connections_and_no_more(target: Attacked, inside: Inside) -> None:
    """Sixty-four hang; the next waits and gets an error; all others are served meanwhile."""

    def under_way() -> int:
        numbers = adam.get(f"{target.url}/metrics").text
        return int(float(re.search(r'warren_under_way{line="port"} (\S+)', numbers)[1]))  # type: ignore[index]

    request = target.head("ann", "GET", f"{inside.path}/hang") + b"\r\n"
    with contextlib.ExitStack() as open_ones, target.client("adam") as adam, target.client("carl") as carl:
        for _ in range(64):
            open_ones.enter_context(target.connect()).sendall(request)
        wait_until(lambda: under_way() == 64, "all of them to hang")
        other = create(carl)
        assert Inside(carl, other).ask("/echo").status_code == 200
        carl.delete(f"/sandboxes/{other}")
        refused = inside.ask("/echo")

    assert refused.status_code == 429
    assert "connections to one sandbox" in refused.json()["detail"]
    assert inside.ask("/echo").status_code == 200


WEBSOCKETS = """
import base64, hashlib, socket, threading

def serve(conn):
    head = b""
    while b"\\r\\n\\r\\n" not in head:
        head += conn.recv(65536)
    lines = head.decode("latin-1").split("\\r\\n")
    path = lines[0].split(" ")[1]
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    key = next(line.split(": ")[1] for line in lines if line.lower().startswith("sec-websocket-key"))
    accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    more = "Sec-WebSocket-Extensions: permessage-deflate\\r\\n" if path == "/deflate" else ""
    more += "Sec-WebSocket-Protocol: unasked\\r\\n" if path == "/protocol" else ""
    accept = "forged" if path == "/accept" else accept
    answer = "HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
    answer += f"Sec-WebSocket-Accept: {accept}\\r\\n{more}\\r\\n"
    if path == "/endless":
        answer = "HTTP/1.1 101 Switching Protocols\\r\\n" + "X: y\\r\\n" * 5000
    conn.sendall(answer.encode())
    frames = {
        "/text": b"\\x81\\x02\\xff\\xfe",
        "/masked": b"\\x81\\x82\\0\\0\\0\\0ab",
        "/huge": b"\\x82\\x7f" + (1 << 62).to_bytes(8, "big"),
        "/opcode": b"\\x83\\x00",
        "/parts": b"\\x01\\x00" + b"\\x00\\x00" * 10000,
        "/code": b"\\x88\\x02\\x03\\xed",
        "/cut": b"\\x81\\x05ab",
    }
    conn.sendall(frames.get(path, b""))
    if path != "/cut":
        conn.recv(65536)

def handle(conn):
    with conn:
        try:
            serve(conn)
        except (OSError, StopIteration, IndexError):
            pass

with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
    with open("port.txt", "w") as file:
        file.write(f"{listener.getsockname()[1]}\\n")
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=handle, args=(conn,), daemon=True).start()
"""


@pytest.fixture(scope="module")
def sockets(target: Attacked) -> Iterator[str]:
    """The address of a server of bad WebSockets."""
    with target.client("ann") as ann:
        sandbox = create(ann)
        port = start_server(ann, sandbox, WEBSOCKETS)
        yield f"ws://127.0.0.1:{target.service.port}/api/v1/sandboxes/{sandbox}/ports/{port}"
        ann.delete(f"/sandboxes/{sandbox}")


@pytest.mark.parametrize("path", ["/deflate", "/protocol", "/accept", "/endless"])
def test_a_handshake_that_is_none_opens_nothing(target: Attacked, sockets: str, path: str) -> None:
    headers = {"X-API-Key": target.secrets["ann"]}

    with pytest.raises(InvalidStatus) as refused:
        connect(sockets + path, additional_headers=headers, proxy=None)

    assert refused.value.response.status_code == 502


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/text", 1007),
        ("/masked", 1002),
        ("/huge", 1009),
        ("/opcode", 1002),
        ("/parts", 1007),
        ("/code", 1002),
        ("/cut", 1014),
    ],
)
def test_frames_that_are_none_close_the_connection(target: Attacked, sockets: str, path: str, code: int) -> None:
    headers = {"X-API-Key": target.secrets["ann"]}
    with (
        connect(sockets + path, additional_headers=headers, proxy=None) as client,
        pytest.raises(ConnectionClosed) as closed,
    ):
        client.recv(timeout=DEADLINE_S)

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code
