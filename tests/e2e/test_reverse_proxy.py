"""The proxies of the how-to, as it configures them, before a real service: TLS, events, WebSockets, uploads."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.sync.client import connect

from e2e.serving import DEADLINE_S, create, wait_until
from e2e.test_docs_run import blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from e2e.serving import RunningService

PAGE = "docs/howto/reverse-proxy-with-tls.md"
NAME = "sandboxes.example.com"
CLIENT = "127.0.0.2"
"""Where the client calls from, so that it is another than the proxy's address."""


class Proxy:
    """A proxy that runs, and clients of it."""

    def __init__(self, service: RunningService, folder: Path, port: int) -> None:
        self.service = service
        self.folder = folder
        self.port = port
        self.tls = ssl.create_default_context(cafile=str(folder / "fullchain.pem"))
        self.headers = {"Authorization": f"Bearer {service.key}"}

    def client(self) -> httpx.Client:
        transport = httpx.HTTPTransport(verify=self.tls, local_address=CLIENT)
        return httpx.Client(
            base_url=f"https://127.0.0.1:{self.port}/api/v1",
            headers=self.headers,
            transport=transport,
            timeout=DEADLINE_S,
        )

    def accepts(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


def write_certificate(folder: Path) -> None:
    """Make a self-signed certificate for this machine."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    names = x509.SubjectAlternativeName([x509.DNSName(NAME), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "fullchain.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "privkey.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def free_port() -> int:
    """Find a port below those that this system gives to outgoing connections: none takes it before the proxy does."""
    while True:
        port = secrets.randbelow(12_000) + 20_000
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def nginx_argv(folder: Path, port: int, service_port: int) -> list[str]:
    """Put what the page says into a whole configuration of a proxy that touches nothing of this machine's."""
    (block,) = blocks(PAGE, "nginx")
    text = (
        block.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
        .replace("127.0.0.1:8000", f"127.0.0.1:{service_port}")
        .replace("/etc/ssl/warren", str(folder))
    )
    places = "\n".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;\nworker_processes 1;\n"
        + ("user root;\n" if os.geteuid() == 0 else "")
        + f"events {{}}\nhttp {{\naccess_log {folder}/access.log;\n{places}\n{text}}}\n"
    )
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed (Debian: apt install nginx)")
    argv = [program, "-p", str(folder), "-c", str(folder / "nginx.conf")]
    checked = subprocess.run([*argv, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    return argv


def caddy_argv(folder: Path, port: int, service_port: int) -> list[str]:
    """The same for the other: only addresses, and a certificate that needs no network, are put in their place."""
    (block,) = blocks(PAGE, "caddy")
    text = block.replace("127.0.0.1:8000", f"127.0.0.1:{service_port}").replace(
        f"{NAME} {{", f"https://127.0.0.1:{port} {{\n\ttls {folder}/fullchain.pem {folder}/privkey.pem"
    )
    (folder / "Caddyfile").write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + text)
    program = shutil.which("caddy")
    if program is None:
        pytest.skip("caddy is not installed (Debian: apt install caddy)")
    return [program, "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


@pytest.fixture(params=[nginx_argv, caddy_argv], ids=["nginx", "caddy"])
def proxy(request: pytest.FixtureRequest, serve: Callable[..., RunningService], tmp_path: Path) -> Iterator[Proxy]:
    folder = tmp_path / "proxy"
    folder.mkdir()
    write_certificate(folder)
    port = free_port()
    argv = request.param(folder, port, 1)
    # Through a proxy strangers may come, so the engine must be one that isolates.
    service = serve("local", serve_trusted_proxies="127.0.0.1").start()
    request.param(folder, port, service.port)
    env = {"PATH": os.defpath, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with open(folder / "said", "wb") as said, subprocess.Popen(argv, env=env, stdout=said, stderr=said) as process:
        proxy = Proxy(service, folder, port)
        try:
            wait_until(lambda: proxy.accepts() or process.poll() is not None, "the proxy to listen")
            assert process.poll() is None, (folder / "said").read_text()
            yield proxy
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


@pytest.mark.root
def test_everything_works_through_the_proxy_of_the_page(proxy: Proxy) -> None:
    with proxy.client() as client:
        sandbox = create(client)
        check_events(client, sandbox)
        check_upload(client, sandbox)
        check_terminal(proxy, sandbox)
        check_addresses(client)
        check_links(proxy, client, sandbox)
        client.delete(f"/sandboxes/{sandbox}")


def check_events(client: httpx.Client, sandbox: str) -> None:
    """Output comes while the program runs, not when it has ended: it waits for us to have read the first line."""
    code = (
        "print('first', flush=True)\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('last')"
    )
    with client.stream(
        "POST", f"/sandboxes/{sandbox}/exec", json={"code": code, "stream": True, "timeout_seconds": 50}
    ) as answer:
        assert answer.status_code == 200, answer.read()
        lines = answer.iter_lines()
        assert next(line for line in lines if "first" in line)
        client.put(f"/sandboxes/{sandbox}/files/go", content=b"").raise_for_status()
        assert next(line for line in lines if "last" in line)


def check_upload(client: httpx.Client, sandbox: str) -> None:
    """More than a proxy takes unless told: nginx stops at 1 MB."""
    content = os.urandom(8 << 20)
    client.put(f"/sandboxes/{sandbox}/files/big.bin", content=content).raise_for_status()

    assert client.get(f"/sandboxes/{sandbox}/files/big.bin").content == content


def check_terminal(proxy: Proxy, sandbox: str) -> None:
    url = f"wss://127.0.0.1:{proxy.port}/api/v1/sandboxes/{sandbox}/terminals/one"
    with connect(url, ssl=proxy.tls, additional_headers=proxy.headers, proxy=None) as terminal:
        assert json.loads(terminal.recv(DEADLINE_S))["type"] == "ready"
        terminal.send(b"echo $((6*7)); exit 3\n")
        messages: list[Any] = list(terminal)

    assert b"\r42\r\n" in b"".join(each for each in messages if isinstance(each, bytes))
    assert json.loads(messages[-1]) == {"type": "exit", "exit_code": 3}


def check_addresses(client: httpx.Client) -> None:
    """The audit record has who called, whatever they say of themselves."""
    client.post("/sandboxes", json={"image": "none"}, headers={"X-Forwarded-For": "8.8.8.8"})
    rows = client.get("/audit", params={"action": "sandbox.create"}).json()["items"]

    assert {row["address"] for row in rows} == {CLIENT}


def check_links(proxy: Proxy, client: httpx.Client, sandbox: str) -> None:
    link = client.post(f"/sandboxes/{sandbox}/links", json={"kind": "file", "path": "go", "method": "GET"})
    assert link.status_code == 201, link.text
    url = link.json()["url"]
    assert client.get(httpx.URL(f"https://127.0.0.1:{proxy.port}").join(url)).status_code == 200

    token = url.split("/s/")[1].split("/")[0]
    for file in proxy.folder.iterdir():
        if file.is_file():
            assert token not in file.read_text(errors="replace"), file
