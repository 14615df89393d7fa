"""Upstream proxy: all egress goes through it, and it gets no other requests."""

from __future__ import annotations

import base64
import functools
import shutil
import socket
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from e2e.serving import wait_until
from security.egress_world import DEADLINE_S, METADATA, PRIVATE, PUBLIC, World, open_world, read_head, say_hello
from warren.core.egress.control import NewSecret
from warren.core.egress.dialer import Unreached
from warren.core.egress.resolver import SystemResolver
from warren.core.egress.upstream import LOOK_S, parse_upstream
from warren.core.sandboxes.changes import SandboxChanges
from warren.domain.egress import Egress, EgressMode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.root
PORT = 3128
_CROWD = """
import json, socket
def ask(name):
    connection = socket.create_connection(("127.0.0.1", 3128), 20)
    connection.sendall(f"GET http://{name}/ HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n".encode())
    return connection
crowd = [ask(f"slow{number}.example") for number in range(40)]
print(json.dumps(ask("inside.example").recv(65536).split()[1].decode()))
"""


class Proxy:
    """A proxy that knows names that no resolver here knows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.names = {"good.example": PUBLIC, "intranet": PRIVATE, "only.internal": PRIVATE}
        self.asked: list[str] = []
        self.authorizations: set[str] = set()
        self.ended = threading.Semaphore(0)

    def __call__(self, connection: socket.socket) -> None:
        head = read_head(connection).decode("ascii")
        line, *headers = head.split("\r\n")
        target = line.split()[1]
        self.asked.append(target)
        self.authorizations |= {each.partition(": ")[2] for each in headers if each.startswith("Proxy-Authorization")}
        host, _, port = target.rpartition(":")
        if host not in self.names:
            connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            return
        # In the network of the world, which threads like this one are not in.
        outside = self._world.portal.call(socket.create_connection, (self.names[host], int(port)))
        connection.sendall(b"HTTP/1.1 200 Go\r\n\r\n")
        with outside:
            back = threading.Thread(target=_pass_on, args=(outside, connection))
            back.start()
            _pass_on(connection, outside)
            back.join(DEADLINE_S)
        self.ended.release()


def _pass_on(come: socket.socket, go: socket.socket) -> None:
    try:
        while data := come.recv(65_536):
            go.sendall(data)
        go.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # One of them has left.


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[World]:
    del python_image
    chosen = {"upstream_proxy": f"http://ann:pa%20ss@{PRIVATE}:{PORT}"}
    with open_world(tmp_path_factory.mktemp("world"), images_dir, **chosen) as world:
        world.names |= {"inside.example": [(PRIVATE,)], "known.example": [(PUBLIC,)]}
        yield world


@pytest.fixture
def proxy(world: World) -> Iterator[Proxy]:
    proxy = Proxy(world)
    with world.serve(proxy, PRIVATE, PORT):
        yield proxy


def test_everything_goes_through_it_and_names_that_only_it_knows_do_too(world: World, proxy: Proxy) -> None:
    sandbox = world.create("rules", "good.example", "known.example")
    proxy.names["known.example"] = PUBLIC
    secret = world.portal.call(
        world.service.egress.create_secret,
        world.caller,
        sandbox,
        NewSecret(name="TOKEN", value="the value itself", hosts=("known.example",)),
    )
    with world.serve(say_hello), world.serve(world.secure(say_hello, "known.example", "good.example"), port=443):
        status, text = world.get(sandbox, "http://good.example/page")
        told, said = world.get(sandbox, "http://known.example/", Authorization=secret.placeholder)
        code, _ = world.shell(sandbox, "curl -sk https://good.example/ | grep -q 'Host: good.example'")

    assert (status, "GET /page HTTP/1.1" in text) == (200, True)
    assert (told, "the value itself" in said, secret.placeholder in said) == (200, False, True)
    assert code == 0
    assert proxy.asked == ["good.example:80", "known.example:443", "good.example:443"]
    assert proxy.authorizations == {f"Basic {base64.b64encode(b'ann:pa ss').decode()}"}
    rows = [(row["host"], row["address"], row["via"], row["outcome"]) for row in world.records(sandbox)]
    assert rows == [
        ("good.example", "", "upstream_proxy", "ok"),
        ("known.example", PUBLIC, "upstream_proxy", "ok"),
        ("good.example", "", "upstream_proxy", "ok"),
    ]


def test_it_is_not_asked_for_what_is_not_public(world: World, proxy: Proxy) -> None:
    free = world.create("open")
    hosts = ["intranet", "only.internal", "localhost", "inside.example", METADATA, "127.0.0.1", f"[::ffff:{PRIVATE}]"]
    hosts += ["kubernetes.default.svc", "vault.service.consul"]
    refused = [world.get(free, f"http://{host}/")[0] for host in hosts]
    ruled = world.create("rules", "0.0.0.0/0", "*.internal")
    refused += [world.get(ruled, f"http://{host}/")[0] for host in ("good.example", "only.internal")]

    assert refused == [403] * 11
    assert proxy.asked == []


def test_what_it_does_not_do_is_said(world: World, proxy: Proxy) -> None:
    sandbox = world.create("open")
    refused = world.get(sandbox, "http://other.example/")

    assert proxy.asked == ["other.example:80"]
    assert refused[0] == 502
    assert "the operator's proxy answers 403" in refused[1]


def test_a_proxy_that_is_away_is_named_by_its_setting_alone(world: World) -> None:
    sandbox, around = world.create("open"), world.service.egress_proxy.around
    away = world.get(sandbox, "http://good.example/")
    before, around.upstream = around.upstream, parse_upstream("http://gate.invalid:3128")
    try:
        unknown = world.get(sandbox, "http://good.example/")
    finally:
        around.upstream = before

    assert (away[0], "egress.upstream_proxy" in away[1]) == (502, True)
    assert unknown[0] in {502, 504}
    assert ("egress.upstream_proxy" in unknown[1], "gate.invalid" in unknown[1]) == (True, False)


def test_a_new_policy_ends_what_it_does_not_allow_there_too(world: World, proxy: Proxy) -> None:
    sandbox = world.create("rules", "good.example")
    begun = threading.Event()

    def hold(connection: socket.socket) -> None:
        read_head(connection)
        begun.set()
        connection.recv(1)

    with world.serve(hold):
        world.shell(sandbox, "curl -s http://good.example/ > /dev/null 2>&1 &")
        assert begun.wait(DEADLINE_S)
        change = SandboxChanges(egress=Egress(mode=EgressMode.NONE))
        world.portal.call(world.service.sandboxes.update, world.caller, sandbox, change)
        assert proxy.ended.acquire(timeout=DEADLINE_S)

    assert world.records(sandbox)[-1]["outcome"] == "cut"


def test_many_lookups_at_once_make_no_name_unknown(world: World, proxy: Proxy) -> None:
    never, around = threading.Event(), world.service.egress_proxy.around

    def find(name: str) -> tuple[str, ...]:
        if name == "inside.example":
            return (PRIVATE,)
        if name.startswith("slow"):
            never.wait(2)
        raise Unreached("it is unknown")

    before, around.resolve = around.resolve, SystemResolver(world.service.observer, LOOK_S, find)
    try:
        status = world.python(world.create("open"), _CROWD)
    finally:
        around.resolve = before
        never.set()

    assert "slow0.example:80" in proxy.asked
    assert "inside.example:80" not in proxy.asked
    assert status in {"403", "504"}


def test_a_third_party_proxy_works_too(world: World, tmp_path: Path) -> None:
    program = shutil.which("tinyproxy")
    if program is None:
        pytest.skip("tinyproxy is not installed (Debian: apt install tinyproxy-bin)")
    config = tmp_path / "tinyproxy.conf"
    config.write_text(f"Port {PORT}\nListen {PRIVATE}\nTimeout 60\nBasicAuth ann pass\n")
    start = functools.partial(subprocess.Popen, [program, "-d", "-c", str(config)], stdout=subprocess.DEVNULL)
    sandbox = world.create("rules", PUBLIC)
    # Its own words for a password, which has a space elsewhere here.
    upstream = world.service.egress_proxy.around.upstream
    world.service.egress_proxy.around.upstream = parse_upstream(f"http://ann:pass@{PRIVATE}:{PORT}")
    with world.portal.call(start) as proxy, world.serve(say_hello):
        try:
            wait_until(lambda: _answers(world), "the proxy to listen")
            status, text = world.get(sandbox, f"http://{PUBLIC}/through")
            world.service.egress_proxy.around.upstream = upstream
            refused = world.get(sandbox, f"http://{PUBLIC}/")
        finally:
            world.service.egress_proxy.around.upstream = upstream
            proxy.terminate()

    assert (status, "GET /through HTTP/1.1" in text) == (200, True)
    assert refused[0] == 502
    assert "the operator's proxy answers 40" in refused[1]


def _answers(world: World) -> bool:
    try:
        world.portal.call(socket.create_connection, (PRIVATE, PORT)).close()
    except OSError:
        return False
    return True
