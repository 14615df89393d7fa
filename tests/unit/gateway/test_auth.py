"""Who asks, by the headers of a request."""

from __future__ import annotations

import base64
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from warren.core.audit.log import Audit
from warren.core.identity.keys import Keys
from warren.core.policy.policy import Policy
from warren.domain.errors import Forbidden, Unauthenticated
from warren.domain.records import AuditQuery, Principal, Scope
from warren.gateway.api.auth import LOCAL, Auth, Door, check_scope, read_secret
from warren.gateway.server.local_socket import LocalAuth
from warren.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[Keys, Audit]]:
    store = SqliteStore(folder)
    await store.open()
    try:
        audit = Audit(store, Policy())
        yield Keys(store, audit), audit
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("headers", "secret"),
    [
        ([(b"authorization", b"Bearer wrn_a")], "wrn_a"),
        ([(b"authorization", b"bearer  wrn_a ")], "wrn_a"),
        ([(b"x-api-key", b"wrn_b")], "wrn_b"),
        ([(b"x-api-key", b"wrn_b"), (b"authorization", b"Bearer wrn_a")], "wrn_a"),
        ([(b"authorization", b"Basic d3JuOmE="), (b"x-api-key", b"wrn_b")], "wrn_b"),
        ([(b"authorization", b"Basic d3JuOmE=")], None),
        ([(b"authorization", b"Basic " + base64.b64encode(b"any:wrn_a"))], "wrn_a"),
        ([(b"authorization", b"basic  " + base64.b64encode(b"wrn_a:"))], "wrn_a"),
        ([(b"authorization", b"Basic " + base64.b64encode(b"wrn_a:wrn_b"))], "wrn_b"),
        ([(b"authorization", b"Basic " + base64.b64encode(b"wrn_a"))], "wrn_a"),
        ([(b"authorization", b"Basic " + base64.b64encode(b"any:wrn_a")), (b"x-api-key", b"wrn_b")], "wrn_b"),
        ([(b"authorization", b"Basic " + base64.b64encode(b"any:eyJ.eyJ.x"))], None),
        ([(b"authorization", b"Basic \xff\xfe")], None),
        ([(b"authorization", b"Bearer")], None),
        ([(b"accept", b"*/*")], None),
    ],
)
def test_the_secret_is_read_from_where_clients_put_it(headers: list[tuple[bytes, bytes]], secret: str | None) -> None:
    assert read_secret(headers) == secret


def test_a_key_is_a_principal_and_anything_else_is_refused(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as (keys, audit):
            key, secret = await keys.create("laptop")
            auth = Auth(keys)
            principal = await auth.identify([(b"authorization", b"Bearer " + secret.encode())])
            with pytest.raises(Unauthenticated, match="no API key"):
                await auth.identify([(b"authorization", b"Basic x")], address="10.0.0.2", request_id="req_1")
            with pytest.raises(Unauthenticated, match="not valid"):
                await auth.identify([(b"x-api-key", b"\xff\xfe")], address="10.0.0.2", request_id="req_2")
            admin = Principal(subject="root", scope=Scope.ADMIN)
            refused = await audit._store.audit(AuditQuery(action="auth.refuse"))
            assert refused.total == 0
            await audit.flush()
            refused = await audit._store.audit(AuditQuery(action="auth.refuse"))
        assert principal.key_id == key.id
        assert admin.may(Scope.RUN)
        assert [row.entry.details["reason"] for row in refused.items] == ["malformed", "missing"]

    anyio.run(check)


def test_a_scope_includes_those_before_it() -> None:
    runner = Principal(subject="ann", scope=Scope.RUN)

    check_scope(runner, Scope.READ)
    check_scope(runner, Scope.RUN)
    with pytest.raises(Forbidden, match="admin"):
        check_scope(runner, Scope.ADMIN)


def test_without_keys_programs_of_this_machine_are_let_in(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as (keys, _):
            auth = Auth(keys, required=False, origins=("https://ours.example",))
            for headers in (
                [(b"host", b"127.0.0.1:8000")],
                [(b"host", b"localhost:8000"), (b"origin", b"http://localhost:8000")],
                [(b"host", b"localhost"), (b"origin", b"http://LOCALHOST:80")],
                [(b"host", b"[::1]:8000"), (b"origin", b"https://ours.example")],
                [],
            ):
                assert await auth.identify(headers) is LOCAL
            secure = [(b"host", b"localhost:8443"), (b"origin", b"https://localhost:8443")]
            assert await auth.identify(secure, scheme="wss") is LOCAL

    anyio.run(check)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"host", b"rebound.evil.example:8000")],
        [(b"host", b"127.0.0.1:8000"), (b"origin", b"https://evil.example")],
        [(b"host", b"127.0.0.1:8000"), (b"origin", b"null")],
        [(b"host", b"127.0.0.1:8000"), (b"origin", b"http://127.0.0.1:3000")],
        [(b"host", b"127.0.0.1:8000"), (b"origin", b"http://localhost:8000")],
        [(b"host", b"127.0.0.1:8000"), (b"origin", b"https://127.0.0.1:8000")],
        [(b"host", b"127.0.0.1:8000"), (b"origin", b"http://127.0.0.1")],
        [(b"origin", b"http://127.0.0.1:3000")],
        [(b"host", b"127.0.0.1:99999"), (b"origin", b"http://127.0.0.1:99999")],
        [(b"host", b"127.0.0.1.evil.example")],
        [(b"host", b"[")],
    ],
)
def test_without_keys_web_pages_of_elsewhere_are_kept_out(tmp_path: Path, headers: list[tuple[bytes, bytes]]) -> None:
    async def check() -> None:
        async with opened(tmp_path) as (keys, _):
            with pytest.raises(Forbidden, match="without keys"):
                await Auth(keys, required=False).identify(headers)

    anyio.run(check)


def test_who_comes_by_the_local_socket_is_the_same_where_a_dialect_is_open() -> None:
    assert anyio.run(LocalAuth().opened_to(Door(principal=Principal(subject="otari"))).identify, ()) == LOCAL


def test_a_door_lets_programs_of_its_networks_in_and_nobody_else(tmp_path: Path) -> None:
    onyx = Principal(subject="open:onyx")
    host = (b"host", b"warren:8000")

    async def check() -> None:
        async with opened(tmp_path) as (keys, _):
            auth = Auth(keys).opened_to(Door(principal=onyx, networks=("10.1.0.0/16", "fd00::7")))
            key, secret = await keys.create("ann")
            for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::7"):
                assert await auth.identify([host], address=address) == onyx
            # A key that is sent counts.
            named = await auth.identify([host, (b"x-api-key", secret.encode())], address="10.1.2.3")
            assert named.key_id == key.id
            for address in ("10.2.0.1", "fd00::8", "", "local uid 0", "10.1.2.3.evil"):
                with pytest.raises(Unauthenticated, match="no API key"):
                    await auth.identify([host], address=address)
            with pytest.raises(Unauthenticated, match="not valid"):
                await auth.identify([host, (b"x-api-key", b"wrn_wrong")], address="10.1.2.3")

    anyio.run(check)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"host", b"10.1.0.1:8000"), (b"origin", b"http://10.1.0.1:8000")],
        [(b"host", b"10.1.0.1:8000"), (b"origin", b"null")],
        [(b"host", b"10.1.0.1:8000"), (b"sec-fetch-site", b"same-origin")],
        [(b"host", b"rebound.evil.example:8000")],
        [],
    ],
)
def test_an_address_alone_opens_nothing_for_web_pages(tmp_path: Path, headers: list[tuple[bytes, bytes]]) -> None:
    """Any page makes the browser of a listed address send requests."""

    async def check() -> None:
        async with opened(tmp_path) as (keys, _):
            auth = Auth(keys).opened_to(Door(principal=Principal(subject="x"), networks=("10.1.0.0/16",)))
            for host in (
                b"10.1.0.1",
                b"[fd00::1]:80",
                b"warren",
                b"warren.internal",
                b"warren.cluster.local",
            ):
                assert (await auth.identify([(b"host", host)], address="10.1.2.3")).subject == "x"
            with pytest.raises(Forbidden, match="without a key"):
                await auth.identify(headers, address="10.1.2.3")

    anyio.run(check)
