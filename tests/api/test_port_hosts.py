"""Servers inside sandboxes at hosts of their own: an origin for each, opened by a link, and for nothing else."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from api.inside import Inside, start_server
from api.served import DEADLINE_S, Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.settings import Settings

NAVIGATE = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.fixture(scope="module")
def served(make_settings: Callable[..., Settings]) -> Iterator[Served]:
    serve = {"ports_url": "https://*.apps.example.com", "cors_origins": ("https://chat.example.com",)}
    served = Served(make_settings("bare", serve=serve))
    served.start()
    yield served
    served.stop()


@pytest.fixture(scope="module")
def inside(served: Served) -> Iterator[Inside]:
    with served.client("ann") as ann:
        made = ann.post("/sandboxes", json={}).json()["id"]
        yield Inside(ann, made)
        ann.delete(f"/sandboxes/{made}")


@pytest.fixture(scope="module")
def link(inside: Inside) -> str:
    url: str = inside.client.post(
        f"/sandboxes/{inside.sandbox}/links", json={"kind": "port", "port": inside.port}
    ).json()["url"]
    return url


def host_of(inside: Inside, port: int | None = None) -> str:
    return f"{port or inside.port}-{inside.sandbox.removeprefix('sbx_')}.apps.example.com"


def look(served: Served, host: str, path: str = "/", method: str = "GET", **headers: str) -> httpx.Response:
    sent = {"Host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return httpx.request(method, f"{served.url}{path}", headers=sent, timeout=DEADLINE_S, trust_env=False)


def test_a_browser_is_led_from_a_link_to_the_page_at_its_own_host(served: Served, inside: Inside, link: str) -> None:
    first = httpx.get(f"{served.url}{link}echo?x=1", headers=NAVIGATE, timeout=DEADLINE_S, trust_env=False)
    assert first.status_code == 307
    assert first.headers["location"] == f"https://{host_of(inside)}{link}echo?x=1"

    second = look(served, host_of(inside), f"{link}echo?x=1", Sec_Fetch_Mode="navigate")
    assert (second.status_code, second.headers["location"]) == (303, "/echo?x=1")
    name, _, rest = second.headers["set-cookie"].partition("=")
    assert name == "warren-link"
    assert {"Path=/", "HttpOnly", "SameSite=Lax", "Secure"} <= {part.strip() for part in rest.split(";")}

    third = look(served, host_of(inside), "/echo?x=1", Cookie=f"a=1; warren-link={link.split('/')[2]}; b=2")
    assert third.status_code == 200
    said = dict(third.json()["headers"])
    assert third.json()["target"] == "/echo?x=1"
    assert said["cookie"] == "a=1; b=2"
    assert said["x-forwarded-host"] == host_of(inside)
    assert "x-forwarded-prefix" not in said
    assert "content-security-policy" not in third.headers


def test_what_is_no_browser_is_served_at_the_link_itself(served: Served, link: str) -> None:
    answer = httpx.get(f"{served.url}{link}echo", timeout=DEADLINE_S, trust_env=False)

    assert answer.status_code == 200
    assert answer.headers["content-security-policy"].startswith("sandbox")


def test_in_a_frame_the_cookie_is_of_that_frame(served: Served, inside: Inside, link: str) -> None:
    answer = look(served, host_of(inside), link, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe")

    assert "SameSite=None; Partitioned; Secure" in answer.headers["set-cookie"]


def test_a_link_never_leads_to_another_host(served: Served, inside: Inside, link: str) -> None:
    for rest in ("/evil.example", "//evil.example", "\\evil.example", "/\\evil.example"):
        location = look(served, host_of(inside), link + rest).headers["location"]
        assert location.startswith("/e"), rest


def test_a_host_answers_for_its_own_port_and_for_nothing_of_ours(served: Served, inside: Inside, link: str) -> None:
    cookie = f"warren-link={link.split('/')[2]}"
    key = f"Bearer {served.keys['ann']}"

    assert look(served, host_of(inside)).status_code == 403
    assert look(served, host_of(inside), Cookie="warren-link=forged").status_code == 403
    assert look(served, host_of(inside, 1), Cookie=cookie).status_code == 403
    assert look(served, host_of(inside, 1), link).status_code == 403
    assert look(served, "x.apps.example.com", Cookie=cookie).status_code == 404
    assert look(served, "apps.example.com", Cookie=cookie).status_code == 404
    assert look(served, f"{host_of(inside)}.", "/livez", Cookie=cookie).status_code == 404
    for path in ("/api/v1/sandboxes", "/metrics", "/docs"):
        assert look(served, host_of(inside), path, Authorization=key).status_code == 403
    assert look(served, host_of(inside), "/echo", Cookie=f"warren-link=forged; {cookie}").status_code == 200


def test_pages_of_others_only_look(served: Served, inside: Inside, link: str) -> None:
    sent = {"Cookie": f"warren-link={link.split('/')[2]}"}
    own, foreign = f"https://{host_of(inside)}", "https://evil.example"

    assert look(served, host_of(inside), "/echo", "POST", Origin=own, **sent).status_code == 200
    assert look(served, host_of(inside), "/echo", "POST", Origin=foreign, **sent).status_code == 403
    assert look(served, host_of(inside), "/echo", "POST", Origin="null", **sent).status_code == 403
    answer = look(served, host_of(inside), "/echo", Origin="https://chat.example.com", **sent)
    assert "access-control-allow-origin" not in answer.headers


SOCKET = """
import base64, hashlib, socket
with socket.create_server(("127.0.0.1", 0)) as listener:
    with open("port.txt", "w") as file:
        file.write(f"{listener.getsockname()[1]}\\n")
    while True:
        conn, _ = listener.accept()
        head = conn.recv(65536).decode("latin-1")
        key = next(line.split(": ")[1] for line in head.split("\\r\\n") if line.lower().startswith("sec-websocket-key"))
        digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        token = base64.b64encode(digest).decode()
        conn.sendall(f"HTTP/1.1 101 Switching\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
                     f"Sec-WebSocket-Accept: {token}\\r\\n\\r\\n".encode() + b"\\x81\\x02hi\\x88\\x00")
        conn.recv(1000)
        conn.close()
"""


def test_a_page_opens_websockets_to_its_own_host_only(served: Served, inside: Inside) -> None:
    port = start_server(inside.client, inside.sandbox, SOCKET, "socket_server.py")
    body = {"kind": "port", "port": port}
    token = inside.client.post(f"/sandboxes/{inside.sandbox}/links", json=body).json()["url"].split("/")[2]

    def open_from(origin: str) -> Any:
        # The name does not exist: what matters is what the request says.
        sock = socket.create_connection(("127.0.0.1", served.port), timeout=DEADLINE_S)
        cookie = {"Cookie": f"warren-link={token}"}
        return connect(f"ws://{host_of(inside, port)}/", sock=sock, origin=Origin(origin), additional_headers=cookie)

    with open_from(f"https://{host_of(inside, port)}") as opened:
        assert opened.recv(timeout=DEADLINE_S) == "hi"
    with pytest.raises(InvalidStatus) as refused:
        open_from("https://evil.example")
    assert refused.value.response.status_code == 403


def test_cookies_keep_their_names_but_reach_no_other_host(served: Served, inside: Inside, link: str) -> None:
    sent = {"Cookie": f"warren-link={link.split('/')[2]}"}
    raw = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/; Domain=apps.example.com\r\nSet-Cookie: warren-link=x\r\n"

    answer = look(served, host_of(inside), inside.say(raw + b"Content-Length: 0\r\n\r\n"), **sent)

    assert answer.headers.get_list("set-cookie") == ["a=1; Path=/"]
