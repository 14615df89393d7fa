"""The service against those who have no key: what they send, how they send it, and what they must not learn."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from typing import TYPE_CHECKING

import httpx
import pytest

from e2e.serving import DEADLINE_S
from security.attacked import UPGRADE, Attacked, attacked, fill

if TYPE_CHECKING:
    from collections.abc import Iterator

SMUGGLED = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /livez HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True)
def unharmed() -> None:
    """No sandbox is attacked here: the service is."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[Attacked]:
    assert python_image is not None
    with attacked(tmp_path_factory.mktemp("strangers"), images_dir) as target:
        yield target


@pytest.mark.parametrize(
    "request_",
    [
        POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
        POST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
        POST + b"Content-Length: 4, 4\r\n\r\nabcd",
        POST + b"Content-Length: +4\r\n\r\nabcd",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: 99999999999999999999\r\n\r\n",
        POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"3;\nabc\r\n0\r\n\r\n",
        CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"3\nabc\n0\n\n",
        b"GET /livez HTTP/1.1\nHost: x\n\n",
        b"GET /livez HTTP/1.1\r\nHost: x\rX: y\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nX: y\r\n z\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nX: y\0z\r\n\r\n",
        b"GET /livez HTTP/1.2\r\nHost: x\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_a_request_that_two_servers_could_read_in_two_ways_is_refused(target: Attacked, request_: bytes) -> None:
    answer = target.send_raw(request_ + SMUGGLED)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        (b"GET /", b"a" * 8192),
        (b"GET / HTTP/1.1\r\nX: ", b"a" * 8192),
        (b"GET / HTTP/1.1\r\n", b"".join(b"x%d: y\r\n" % number for number in range(500))),
        (CHUNKED + b"1;", b"a" * 8192),
        (CHUNKED + b"0\r\n", b"x: y\r\n" * 500),
    ],
    ids=["address", "header", "headers", "chunk extension", "trailers"],
)
def test_a_head_without_end_is_cut_off_before_it_takes_memory(target: Attacked, begun: bytes, piece: bytes) -> None:
    before, sent = target.memory_mb(), 0
    with target.connect() as connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(begun)
        while sent < 128 << 20:
            connection.sendall(piece)
            sent += len(piece)
    assert sent < 32 << 20
    assert target.memory_mb() < before + 16


def test_every_operation_wants_a_key_and_says_no_more_than_that(target: Attacked) -> None:
    found = 0
    with target.client("anonymous") as anonymous:
        for method, path in target.operations():
            bodies = set()
            for headers in ({}, {"Authorization": "Bearer wrn_" + "A" * 43}, {"X-API-Key": "wrn_"}):
                address = fill(path, sandbox_id="sbx_" + "0" * 24)
                answer = anonymous.request(method, address, headers=headers)
                if answer.status_code == 426:
                    answer = anonymous.request(method, address, headers=headers | UPGRADE)
                assert answer.status_code == 401, (method, path, answer.text)
                assert answer.headers["www-authenticate"].startswith("Bearer")
                bodies.add(re.sub(r"req_\w+", "", answer.text))
            assert len(bodies) <= 2 or method == "HEAD"
            found += 1
    assert found > 25


def test_numbers_and_details_are_for_those_with_a_key(target: Attacked) -> None:
    assert target.service.probe("/metrics").status_code == 401
    assert target.service.probe("/healthz/details").status_code == 401
    for path in ("/livez", "/readyz", "/healthz", "/health"):
        assert str(target.service.folder) not in target.service.probe(path).text


def test_the_address_in_the_record_is_not_what_the_client_says_it_is(target: Attacked) -> None:
    forged = {"X-Forwarded-For": "203.0.113.7", "Forwarded": "for=203.0.113.7", "X-Real-IP": "203.0.113.7"}
    with target.client("adam") as adam:
        assert adam.post("/sandboxes/sbx_00000000/stop", headers=forged).status_code == 404
        rows = adam.get("/audit", params={"action": "sandbox.stop"}).json()["items"]
    assert {row["address"] for row in rows} == {"127.0.0.1"}


def test_failed_logins_do_not_fill_the_record(target: Attacked) -> None:
    with target.client("anonymous") as anonymous, target.client("adam") as adam:
        for _ in range(200):
            assert anonymous.get("/sandboxes").status_code == 401
        refused = adam.get("/audit", params={"action": "auth.refuse"}).json()["total"]
    # A minute may have ended in between.
    assert 0 < refused <= 120 + 60


def test_what_a_stranger_sends_comes_back_as_nothing_that_a_browser_runs(target: Attacked) -> None:
    script = "<script>alert(1)</script>"
    for path in (f"/{script}", f"/api/v1/{script}", f"/docs?x={script}", f"/api/v1/run/{script}?{script}"):
        answer = httpx.get(f"{target.url}{path}", headers={"X-Request-ID": script}, timeout=DEADLINE_S, trust_env=False)
        assert script not in answer.text
        assert script not in answer.headers["x-request-id"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_no_foreign_page_is_allowed_in(target: Attacked) -> None:
    for origin in ("https://evil.example", "null"):
        answer = httpx.options(
            f"{target.url}/api/v1/run",
            headers={"Origin": origin, "Access-Control-Request-Method": "POST"},
            timeout=DEADLINE_S,
            trust_env=False,
        )
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_what_the_service_keeps_is_for_its_own_user_alone(target: Attacked) -> None:
    for name in ("warren.db", "warren.db-wal", "audit.key", "service.lock"):
        assert stat.S_IMODE(os.stat(target.service.folder / name).st_mode) == 0o600, name


def test_secrets_are_neither_in_files_nor_in_logs_nor_among_the_processes(target: Attacked) -> None:
    with target.client("ann") as ann:
        assert ann.get("/sandboxes").status_code == 200
    secrets = [secret.encode() for secret in target.secrets.values()]
    for path in (*(target.service.folder / name for name in ("warren.db", "warren.db-wal")), target.service.log_path):
        kept = path.read_bytes()
        assert not [secret for secret in secrets if secret in kept], path
    for name in ("cmdline", "environ"):
        with open(f"/proc/{target.service.pid}/{name}", "rb") as file:
            assert b"wrn_" not in file.read()
