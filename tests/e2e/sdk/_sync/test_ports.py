# Made from tests/e2e/sdk/_async/test_ports.py by `make sdk`: change that instead.
from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

import warren
from warren import Output

if TYPE_CHECKING:
    from warren import Sandbox

SERVER = """
import base64, hashlib, http.server

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if "Sec-WebSocket-Key" in self.headers:
            return self.greet()
        self.answer(200 if self.path.startswith("/here") else 404, self.path.encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        mine, key = self.headers.get("X-Mine", ""), self.headers.get("Authorization", "")
        self.answer(201, body.upper() + mine.encode() + key.encode())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def greet(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"\\x81\\x05hello")
        self.connection.recv(1)
        self.close_connection = True

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def start_server(sandbox: Sandbox) -> tuple[int, warren.Execution]:
    execution = sandbox.start(SERVER, fresh=True)
    with execution.events() as events:
        for event in events:
            if isinstance(event, Output):
                return int(event.text), execution
    raise AssertionError("the server did not say where it is")


def test_a_server_inside_is_asked(sandbox: Sandbox) -> None:
    port, server = start_server(sandbox)
    try:
        page = sandbox.ports.request(port, "/here/%2F?x=1")
        missing = sandbox.ports.request(port, "nothing", params={"y": True})
        made = sandbox.ports.request(port, method="POST", content="text", headers={"X-Mine": "!"})
        with sandbox.ports.stream(port, "/here") as answer:
            streamed = answer.read()

        assert (page.status_code, page.text) == (200, "/here/%2F?x=1")
        assert (missing.status_code, missing.text) == (404, "/nothing?y=true")
        assert (made.status_code, made.content) == (201, b"TEXT!")
        assert streamed == b"/here"
        with sandbox.ports.websocket(port, "/socket") as websocket:
            assert websocket.recv() == "hello"
    finally:
        server.kill()
    assert (sandbox.ports.request(port)).status_code == 502


def test_links_lead_there_without_a_key(sandbox: Sandbox) -> None:
    port, server = start_server(sandbox)
    sandbox.files.write("shown.txt", "shown")
    try:
        page = sandbox.link_port(port, expires_in_seconds=60)
        read = sandbox.link_file("shown.txt")
        write = sandbox.link_file("given.txt", method="PUT", max_bytes=10)
        terminal = sandbox.link_terminal()

        with httpx.Client(timeout=60, trust_env=False) as browser:
            assert (browser.get(page.url + "here")).text == "/here"
            assert (browser.get(read.url)).text == "shown"
            assert (browser.put(write.url, content=b"given")).is_success
            assert not (browser.put(write.url, content=b"too much of it")).is_success
        assert sandbox.files.read("given.txt") == b"given"
        assert (page.kind, read.kind, terminal.kind) == ("port", "file", "terminal")
        assert page.expires_at < read.expires_at
        assert page.url not in repr(page)
    finally:
        server.kill()
