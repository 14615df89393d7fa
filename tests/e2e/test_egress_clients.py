"""The programs that people use find the egress proxy by themselves: nothing in them is changed or configured."""

from __future__ import annotations

import http.server
import importlib.util
import io
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from security.egress_world import PUBLIC, World, open_world

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[World]:
    """Files over HTTP and HTTPS, a git repository among them."""
    del python_image
    folder = tmp_path_factory.mktemp("site")
    (folder / "page.txt").write_text("a page")
    _make_repository(folder)
    with open_world(tmp_path_factory.mktemp("world"), images_dir) as world:
        world.names |= {"site.example": [(PUBLIC,)]}
        serve = _files(folder)
        with world.serve(serve), world.serve(world.secure(serve, "site.example"), port=443):
            yield world


@pytest.fixture(scope="module")
def sandbox(world: World) -> str:
    """One that knows the authority of the site's certificate, as this host's programs know theirs."""
    sandbox = world.create("rules", "site.example")
    world.run(sandbox, f"open('ca.pem', 'w').write({world.authority.text!r})")
    world.write(sandbox, "clients.zip", _pack(*LIBRARIES))
    world.shell(sandbox, "python -m zipfile -e clients.zip clients")
    return sandbox


def _pack(*names: str) -> bytes:
    """Put the libraries that run the tests into an archive: the same that people install."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in names:
            spec = importlib.util.find_spec(name)
            assert spec is not None
            assert spec.origin is not None
            origin = Path(spec.origin)
            files = origin.parent.rglob("*") if origin.name == "__init__.py" else [origin]
            top = origin.parent.parent if origin.name == "__init__.py" else origin.parent
            for file in files:
                if file.suffix in {".py", ".pem"}:
                    archive.write(file, file.relative_to(top))
    return packed.getvalue()


def _make_repository(folder: Path) -> None:
    if shutil.which("git") is None:
        return
    work, bare = folder / "work", folder / "repository.git"
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main")
    for command in (
        ("git", *who, "init", "-q", str(work)),
        ("git", *who, "-C", str(work), "commit", "-q", "--allow-empty", "-m", "The first"),
        ("git", "clone", "-q", "--bare", str(work), str(bare)),
        ("git", "-C", str(bare), "update-server-info"),
    ):
        subprocess.run(command, check=True, capture_output=True)


def _files(folder: Path) -> Callable[[socket.socket], object]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, connection: socket.socket) -> None:
            super().__init__(connection, ("", 0), None, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


LIBRARIES = (
    *("httpx", "httpcore", "h11", "idna", "anyio", "certifi", "typing_extensions"),
    *("requests", "urllib3", "charset_normalizer"),
)
PYTHON = {
    "urllib": "import urllib.request; print(urllib.request.urlopen({url!r}, timeout=20).read().decode())",
    "requests": "import requests; print(requests.get({url!r}, timeout=20).text)",
    "httpx": "import httpx; print(httpx.get({url!r}, timeout=20).text)",
}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("client", PYTHON)
def test_python_clients(world: World, sandbox: str, client: str, scheme: str) -> None:
    code = PYTHON[client].format(url=f"{scheme}://site.example/page.txt").replace("'", '"')

    ended, said = world.shell(
        sandbox,
        f"PYTHONPATH=clients SSL_CERT_FILE=ca.pem REQUESTS_CA_BUNDLE=ca.pem python -W error::UserWarning -c '{code}'",
    )

    assert (ended, said) == (0, "a page\n")


@pytest.mark.parametrize(
    "command",
    [
        "curl -sS http://site.example/page.txt",
        "curl -sS --cacert ca.pem https://site.example/page.txt",
        "curl -sS --cacert ca.pem --socks5-hostname 127.0.0.1:3128 https://site.example/page.txt",
        "curl -sS --socks4a 127.0.0.1:3128 http://site.example/page.txt",
        "curl -sS -p http://site.example/page.txt",
        "wget -q -O - http://site.example/page.txt",
        "git clone -q http://site.example/repository.git a && git -C a log --format=%s",
        "git -c http.sslCAInfo=ca.pem clone -q https://site.example/repository.git b && git -C b log --format=%s",
    ],
)
def test_commands(world: World, sandbox: str, command: str) -> None:
    program = command.split(maxsplit=1)[0]
    if world.shell(sandbox, f"command -v {program}")[0] != 0:
        pytest.skip(f"this host has no {program}")

    ended, said = world.shell(sandbox, command)

    assert ended == 0, said
    assert said.strip() in {"a page", "The first"}


def test_a_refusal_reaches_the_program_in_words(world: World, sandbox: str) -> None:
    """Also where a client shows nothing of an answer but its first line."""
    _, http_said = world.shell(sandbox, "curl -sS http://elsewhere.example/")
    _, urllib_said = world.shell(
        sandbox, "python -c \"import urllib.request; urllib.request.urlopen('https://elsewhere.example/')\""
    )

    for said in (http_said, urllib_said):
        assert "elsewhere.example" in said
        assert "no rule of this sandbox's egress names it" in said


def test_names_of_the_sandbox_itself_go_nowhere(world: World, sandbox: str) -> None:
    server = (
        "import http.server, threading, urllib.request; "
        's = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler); '
        "threading.Thread(target=s.serve_forever, daemon=True).start(); "
        'print(urllib.request.urlopen(f"http://localhost:{s.server_port}/ca.pem").status)'
    )

    ended, said = world.shell(sandbox, f"python -c '{server}'")

    assert ended == 0
    assert said.splitlines()[-1] == "200"
