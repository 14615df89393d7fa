"""A package index on loopback for tests: it records requests, and lies on demand."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 30.0


def build_wheel(name: str, version: str, *, requires: tuple[str, ...] = (), script: str = "", pad: int = 0) -> bytes:
    """Build a wheel whose module says its version; with `script`, a command of that name says it too."""
    module, out = name.replace("-", "_"), io.BytesIO()
    meta = f"{module}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": f"__version__ = {version!r}\n\n\ndef main():\n    print({name!r}, __version__)\n",
        f"{meta}/METADATA": _metadata(name, version, requires),
        f"{meta}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script:
        files[f"{meta}/entry_points.txt"] = f"[console_scripts]\n{script} = {module}:main\n"
    if pad:
        files[f"{module}/pad.bin"] = "x" * pad
    record = "".join(f"{path},sha256={_record_hash(text)},{len(text)}\n" for path, text in files.items())
    with zipfile.ZipFile(out, "w") as wheel:
        for path, text in {**files, f"{meta}/RECORD": record + f"{meta}/RECORD,,\n"}.items():
            wheel.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), text)
    return out.getvalue()


def _metadata(name: str, version: str, requires: tuple[str, ...]) -> str:
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def build_tarball(name: str, version: str, requires: tuple[str, ...] = ()) -> bytes:
    """Build a package of npm whose module is its version."""
    out = io.BytesIO()
    files = {
        "package/package.json": json.dumps({"name": name, "version": version, "main": "index.js", **_needs(requires)}),
        "package/index.js": f"module.exports = {version!r};\n",
    }
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def _needs(requires: tuple[str, ...]) -> dict[str, Any]:
    return {"dependencies": dict.fromkeys(requires, "*")} if requires else {}


class Shelf:
    """What the index has, and what it was asked for."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.files: dict[str, bytes] = {}
        """By path, what is sent."""
        self.pages: dict[str, list[dict[str, Any]]] = {}
        self.packuments: dict[str, dict[str, Any]] = {}
        self.redirects: dict[str, str] = {}
        self.is_html = False
        self.down = False
        """Whether everything is answered with 503."""
        self.garbage: bytes | None = None
        """What is answered for every page, where that is set."""
        self.max_age: int | None = 0
        self.cut: dict[str, int] = {}
        """By path, after how many bytes the connection ends."""
        self.held: dict[str, threading.Event] = {}
        """By path, what is waited for in the middle of a file."""
        self.middle = threading.Event()
        """Set when a file that is held has come to its middle."""

    @property
    def url(self) -> str:
        """Where its simple pages are."""
        return f"http://127.0.0.1:{self.port}/simple/"

    @property
    def npm_url(self) -> str:
        """Where its registry is."""
        return f"http://127.0.0.1:{self.port}/npm/"

    def count(self, path: str) -> int:
        """Count the requests for a path."""
        return self.asked.count(path)

    def put(self, name: str, version: str, *, with_hash: bool = True, with_metadata: bool = False, **made: Any) -> str:
        """Put a wheel on the shelf; returns its path."""
        content = build_wheel(name, version, **made)
        filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        path = f"/files/{filename}"
        self.files[path] = content
        entry: dict[str, Any] = {"filename": filename, "url": f"../../files/{filename}", "size": len(content)}
        entry["hashes"] = {"sha256": hashlib.sha256(content).hexdigest()} if with_hash else {}
        if with_metadata:
            metadata = _metadata(name, version, made.get("requires", ())).encode()
            self.files[f"{path}.metadata"] = metadata
            entry["core-metadata"] = {"sha256": hashlib.sha256(metadata).hexdigest()}
        self.pages.setdefault(name, []).append(entry)
        return path

    def put_npm(self, name: str, version: str, *, with_integrity: bool = True, requires: tuple[str, ...] = ()) -> str:
        """Put a package of npm on the shelf; returns its path."""
        content = build_tarball(name, version, requires)
        file = f"{name.rpartition('/')[2]}-{version}.tgz"
        path = f"/npm/{name}/-/{file}"
        self.files[path] = content
        dist = {"tarball": f"http://127.0.0.1:{self.port}{path}", "shasum": hashlib.sha1(content).hexdigest()}
        if with_integrity:
            dist["integrity"] = f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"
        said = self.packuments.setdefault(name, {"name": name, "dist-tags": {}, "versions": {}})
        said["dist-tags"]["latest"] = version
        said["versions"][version] = {"name": name, "version": version, "dist": dist, **_needs(requires)}
        return path

    def render(self, project: str) -> tuple[str, bytes]:
        """Write the page of a project: its type and body."""
        files = self.pages[project]
        if self.garbage is not None:
            return "application/vnd.pypi.simple.v1+json", self.garbage
        if self.is_html:
            return "text/html", "\n".join(map(_anchor, files)).encode()
        body = {"meta": {"api-version": "1.1"}, "name": project, "files": files}
        return "application/vnd.pypi.simple.v1+json", json.dumps(body).encode()


def _anchor(file: dict[str, Any]) -> str:
    fragment = "".join(f"#{name}={value}" for name, value in file["hashes"].items())
    metadata = file.get("core-metadata")
    more = f' data-core-metadata="sha256={metadata["sha256"]}"' if metadata else ""
    return f'<a href="{file["url"]}{fragment}"{more}>{file["filename"]}</a>'


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    shelf: Shelf


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        shelf = self.server.shelf
        shelf.asked.append(self.path)
        shelf.headers.append({name.lower(): value for name, value in self.headers.items()})
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._answer(shelf, self.path)

    def _answer(self, shelf: Shelf, path: str) -> None:
        name = path.removeprefix("/npm/").replace("%2F", "/")
        project = path.removeprefix("/simple/").strip("/")
        if shelf.down:
            self._send(503, b"")
        elif path in shelf.redirects:
            self._send(302, b"", location=shelf.redirects[path])
        elif path in shelf.files:
            self._send_file(shelf, path, shelf.files[path])
        elif project in shelf.pages:
            self._send_page(shelf, *shelf.render(project))
        elif name in shelf.packuments:
            self._send_page(shelf, "application/json", json.dumps(shelf.packuments[name]).encode())
        else:
            self._send(404, b"")

    def _send_page(self, shelf: Shelf, kind: str, body: bytes) -> None:
        etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        more = {} if shelf.max_age is None else {"cache_control": f"max-age={shelf.max_age}"}
        is_same = self.headers.get("If-None-Match") == etag
        self._send(304 if is_same else 200, b"" if is_same else body, content_type=kind, etag=etag, **more)

    def _send_file(self, shelf: Shelf, path: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        half = shelf.cut.get(path, len(body) // 2)
        self.wfile.write(body[:half])
        self.wfile.flush()
        if path in shelf.cut:
            self.close_connection = True
            return
        if path in shelf.held:
            shelf.middle.set()
            assert shelf.held[path].wait(WAIT_S)
        self.wfile.write(body[half:])

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def shelving() -> Iterator[Shelf]:
    """Serve a shelf."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.shelf = shelf = Shelf()
        shelf.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield shelf
        finally:
            for held in shelf.held.values():
                held.set()
            server.shutdown()
            thread.join()
