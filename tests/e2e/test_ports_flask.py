"""A Flask application and a WebSocket server in a sandbox of the local engine, reached through a real service."""

from __future__ import annotations

import functools
import os
import threading
from typing import TYPE_CHECKING

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from e2e.serving import DEADLINE_S, RunningService, create, wait_until
from warren.core.images.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

SPECS = os.path.join(os.path.dirname(__file__), "images")

FLASK = """
import time
from flask import Flask, Response, redirect, request, session, url_for
from werkzeug.middleware.proxy_fix import ProxyFix

app = Flask(__name__)
app.secret_key = "only here"

@app.get("/")
def home():
    return f'<h1>Hello {session.get("name", "stranger")}</h1><a href="next">next</a>'

@app.post("/login")
def login():
    session["name"] = request.form["name"]
    return redirect(url_for("home"))

@app.get("/where")
def where():
    sent = request.headers.get("Authorization")
    return {"url": request.url, "home": url_for("home", _external=True), "authorization": sent}

@app.post("/upload")
def upload():
    size = 0
    while piece := request.stream.read(65536):
        size += len(piece)
    return {"size": size}

@app.get("/events")
def events():
    def tell():
        for number in range(3):
            yield f"data: {number}\\n\\n"
            time.sleep(0.05)
    return Response(tell(), mimetype="text/event-stream")

if __name__ == "__main__":
    app.wsgi_app = ProxyFix(app.wsgi_app, x_for=0, x_proto=1, x_host=1, x_prefix=1)
    app.run(host="127.0.0.1", port=5000, threaded=True)
"""

SOCKETS = """
import asyncio, os
from websockets.asyncio.server import serve

async def handle(connection):
    try:
        await talk(connection)
    finally:
        await connection.wait_closed()
        # Of each code its own, for those of other tests may come late; and whole, when it is there.
        open("closing.txt", "w").write(connection.close_reason)
        os.rename("closing.txt", f"closed-{connection.close_code}.txt")

async def talk(connection):
    async for message in connection:
        if message == "close":
            await connection.close(4001, "as you wish")
        elif message == "protocol":
            await connection.send(str(connection.subprotocol))
        elif message == "headers":
            lines = (f"{name}: {value}" for name, value in connection.request.headers.raw_items())
            await connection.send("\\n".join(lines))
        elif message == "large":
            await connection.send(bytes(3 << 19))
        else:
            await connection.send(message)

async def main():
    choose = lambda connection, offered: "chat.v2" if "chat.v2" in offered else None
    async with serve(handle, "localhost", 8765, select_subprotocol=choose) as server:
        await server.serve_forever()

asyncio.run(main())
"""


class Web:
    """A sandbox in which both servers run."""

    def __init__(self, service: RunningService, client: httpx.Client) -> None:
        self.service = service
        self.client = client
        self.sandbox = create(client, image="web")
        for name, source, port in (("app.py", FLASK, 5000), ("sockets.py", SOCKETS, 8765)):
            client.put(f"/sandboxes/{self.sandbox}/files/{name}", content=source.encode())
            command = {"command": f"exec python {name}", "background": True}
            assert client.post(f"/sandboxes/{self.sandbox}/exec", json=command).status_code == 202
            wait_until(functools.partial(self._listens, port), f"{name} to listen")

    def _listens(self, port: int) -> bool:
        return self.client.get(self.path(port)).status_code != 502

    def path(self, port: int) -> str:
        return f"/sandboxes/{self.sandbox}/ports/{port}/"

    def link(self, port: int) -> str:
        body = {"kind": "port", "port": port}
        url: str = self.client.post(f"/sandboxes/{self.sandbox}/links", json=body).json()["url"]
        return url

    def ws(self, path: str) -> str:
        return f"ws://127.0.0.1:{self.service.port}{path}"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, images_dir: str) -> Iterator[Web]:
    if os.geteuid() != 0:
        pytest.skip("the service is tested on the local engine as root")
    Catalog(images_dir, [SPECS]).build("web")
    service = RunningService(tmp_path_factory.mktemp("web") / "data", images_dir, image_dirs=SPECS, image="web")
    service.start()
    try:
        with service.client() as client:
            yield Web(service, client)
    finally:
        service.clear()


@pytest.fixture
def browser(web: Web) -> Iterator[httpx.Client]:
    """A user with a link and no key, who keeps cookies and follows redirects."""
    base = f"http://127.0.0.1:{web.service.port}{web.link(5000)}"
    with httpx.Client(base_url=base, timeout=DEADLINE_S, follow_redirects=True, trust_env=False) as client:
        yield client


def test_a_page_is_shown_to_its_owner_and_by_a_link(web: Web, browser: httpx.Client) -> None:
    assert "Hello stranger" in web.client.get(web.path(5000)).text
    assert "Hello stranger" in browser.get("").text


def test_a_user_signs_in_and_stays_signed_in(web: Web, browser: httpx.Client) -> None:
    """A form, a cookie, a redirect and the page behind it, below the link."""
    page = browser.post("login", data={"name": "Ada"})

    assert page.text.startswith("<h1>Hello Ada</h1>")
    assert page.url.path.startswith("/s/")
    cookie = next(iter(browser.cookies.jar))
    assert cookie.name == "warren-port-session"
    assert cookie.path.startswith("/s/")
    assert "Hello Ada" in browser.get("").text
    assert "Hello stranger" in web.client.get(web.path(5000)).text


def test_an_application_knows_its_address_outside(web: Web) -> None:
    outside = f"http://127.0.0.1:{web.service.port}/api/v1{web.path(5000)}"

    said = web.client.get(web.path(5000) + "where", headers={"X-Warren-Authorization": "Bearer for-flask"}).json()

    assert said == {"url": f"{outside}where", "home": outside, "authorization": "Bearer for-flask"}


def test_an_upload_without_a_length_arrives_whole(browser: httpx.Client) -> None:
    assert browser.post("upload", content=bytes(20 << 20)).json() == {"size": 20 << 20}


def test_events_are_streamed(browser: httpx.Client) -> None:
    with browser.stream("GET", "events") as answer:
        lines = [line for line in answer.iter_lines() if line]

    assert lines == ["data: 0", "data: 1", "data: 2"]


def test_many_people_look_at_once(browser: httpx.Client) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(browser.get("").text[:9])) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)

    assert found == ["<h1>Hello"] * 40


def test_messages_pass_both_ways(web: Web) -> None:
    headers = {"Authorization": f"Bearer {web.service.key}"}
    with connect(web.ws(f"/api/v1{web.path(8765)}"), additional_headers=headers, proxy=None) as socket:
        for message in ("hello", "", "é" * 1000, b"\x00\xff", bytes(900_000)):
            socket.send(message)
            assert socket.recv(timeout=DEADLINE_S) == message
        socket.send(["in ", "several ", "parts"])
        assert socket.recv(timeout=DEADLINE_S) == "in several parts"


def test_a_subprotocol_is_agreed_on_and_no_key_goes_in(web: Web) -> None:
    protocols = [Subprotocol("warren.v1"), Subprotocol(f"warren.key.{web.service.key}"), Subprotocol("chat.v2")]
    with connect(web.ws(f"/api/v1{web.path(8765)}"), subprotocols=protocols, proxy=None) as socket:
        socket.send("headers")
        said = str(socket.recv(timeout=DEADLINE_S))

    assert socket.subprotocol == "chat.v2"
    assert web.service.key not in said
    assert "Sec-WebSocket-Protocol: chat.v2\n" in said + "\n"


def test_the_servers_close_code_reaches_the_client(web: Web) -> None:
    with connect(web.ws(web.link(8765)), proxy=None) as socket:
        socket.send("close")
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=DEADLINE_S)

    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "as you wish")


def test_the_clients_close_code_reaches_the_server(web: Web) -> None:
    with connect(web.ws(web.link(8765)), proxy=None) as socket:
        socket.send("hello")
        socket.recv(timeout=DEADLINE_S)
        socket.close(4002, "I go")

    def look() -> str:
        found = web.client.get(f"/sandboxes/{web.sandbox}/files/closed-4002.txt")
        return found.text if found.status_code == 200 else ""

    assert wait_until(look, "the server to note it") == "I go"


def test_a_large_message_comes_out(web: Web) -> None:
    with connect(web.ws(web.link(8765)), max_size=None, proxy=None) as socket:
        socket.send("large")
        assert len(socket.recv(timeout=DEADLINE_S)) == 3 << 19


def test_the_log_has_no_link_and_no_key(web: Web) -> None:
    url = web.link(5000)
    token = url.split("/")[2]
    for address in (url, f"/s/{token}x/"):
        httpx.get(f"http://127.0.0.1:{web.service.port}{address}", timeout=DEADLINE_S, trust_env=False)
    with connect(web.ws(web.link(8765)), proxy=None):
        """Opened and closed."""
    log = web.service.log_path.read_text()

    assert '"/s/…"' in log or "/s/\\u2026" in log
    assert token[:30] not in log
    assert web.service.key not in log
