"""A server for sandboxes to run, of sockets only: it answers what it is told to, well-behaved or not."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from api.served import wait_for

if TYPE_CHECKING:
    import httpx

SOURCE = r"""
import base64, json, socket, struct, threading, urllib.parse

go = threading.Event()

def read_head(file):
    lines = []
    while (line := file.readline()) not in (b"\r\n", b""):
        lines.append(line.decode("latin-1").rstrip("\r\n"))
    return lines

def read_body(file, headers):
    given = dict((name.lower(), value) for name, value in headers)
    if given.get("transfer-encoding") == "chunked":
        while size := int(file.readline(), 16):
            yield file.read(size)
            file.readline()
        file.readline()
    elif "content-length" in given:
        left = int(given["content-length"])
        while left and (piece := file.read1(min(left, 65536))):
            left -= len(piece)
            yield piece

def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)

def serve(conn):
    file = conn.makefile("rb")
    head = read_head(file)
    if not head:
        return
    method, target, _ = head[0].split(" ")
    headers = [line.split(": ", 1) for line in head[1:]]
    path, _, query = target.partition("?")
    if path == "/echo":
        if dict(headers).get("expect"):
            conn.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = b"".join(read_body(file, headers))
        said = json.dumps({"method": method, "target": target, "headers": headers, "size": len(body),
                           "body": body[:1000].decode("latin-1")}).encode()
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(said))
        if method != "HEAD":
            conn.sendall(said)
    elif path == "/raw":
        conn.sendall(open("answer.bin", "rb").read() if query == "file" else
                     base64.urlsafe_b64decode(urllib.parse.unquote(query)))
    elif path == "/refuse":
        conn.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!")
    elif path == "/talk":
        conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in read_body(file, headers):
            conn.sendall(chunk(b"heard " + piece))
        conn.sendall(b"0\r\n\r\n")
    elif path == "/events":
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: first\n\n")
        go.wait(30)
        conn.sendall(b"data: second\n\n")
    elif path == "/go":
        go.set()
        conn.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    elif path == "/large":
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
        for _ in range(64):
            conn.sendall(bytes(1 << 20))
    elif path == "/hang":
        conn.recv(1)
    elif path == "/reset":
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

def handle(conn):
    with conn:
        try:
            serve(conn)
        except (OSError, ValueError):
            pass

with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
    with open("port.txt", "w") as file:
        file.write(f"{listener.getsockname()[1]}\n")
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=handle, args=(conn,), daemon=True).start()
"""


class Inside:
    """The server, running in a sandbox."""

    def __init__(self, client: httpx.Client, sandbox: str, *, is_execution: bool = True) -> None:
        self.client = client
        self.sandbox = sandbox
        self.port = start_server(client, sandbox, SOURCE, is_execution=is_execution)

    @property
    def path(self) -> str:
        """Where it is, below the API."""
        return f"/sandboxes/{self.sandbox}/ports/{self.port}"

    def ask(self, path: str, method: str = "GET", **options: Any) -> httpx.Response:
        return self.client.request(method, f"{self.path}{path}", **options)

    def say(self, answer: bytes) -> str:
        """Return the path where exactly these bytes are answered."""
        return f"/raw?{quote(base64.urlsafe_b64encode(answer).decode())}"


def start_server(
    client: httpx.Client, sandbox: str, source: str, name: str = "server.py", *, is_execution: bool = True
) -> int:
    """Run a program that writes the port it listens on into `port.txt`, and wait until it has."""
    client.delete(f"/sandboxes/{sandbox}/files/port.txt")
    assert client.put(f"/sandboxes/{sandbox}/files/{name}", content=source.encode()).status_code == 204
    asked: dict[str, object] = {"command": f"exec python {name}", "background": True}
    if not is_execution:
        asked = {"code": f"import subprocess, sys; server = subprocess.Popen([sys.executable, {name!r}])"}
    started = client.post(f"/sandboxes/{sandbox}/exec", json=asked)
    assert started.is_success, started.text

    def look() -> int | None:
        found = client.get(f"/sandboxes/{sandbox}/files/port.txt")
        return int(found.text) if found.status_code == 200 and found.text.endswith("\n") else None

    return wait_for(look)
