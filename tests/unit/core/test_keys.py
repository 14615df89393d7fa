"""API keys: which are accepted, which are not, and the messages."""

from __future__ import annotations

import re
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.meddling import MeddledStore
from warren.core.audit.log import Audit
from warren.core.identity.keys import Keys
from warren.core.policy.policy import Policy
from warren.domain.errors import Conflict, InvalidRequest, NotFound, Unauthenticated
from warren.domain.records import AuditQuery, Caller, Principal, Scope
from warren.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from warren.domain.records import ApiKey

ADMIN = Caller(principal=Principal(subject="root", scope=Scope.ADMIN), request_id="req_1", address="10.0.0.1")


class Clock:
    """A time that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Office:
    """Keys with everything they need."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.clock = Clock()
        self.audit = Audit(store, Policy())
        self.keys = Keys(store, self.audit, self.clock)

    async def actions(self) -> list[tuple[str, object]]:
        await self.audit.flush()
        page = await self.store.audit(AuditQuery())
        return [(row.entry.action, row.entry.details.get("reason")) for row in reversed(page.items)]


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Office]:
    store = SqliteStore(folder)
    await store.open()
    try:
        yield Office(store)
    finally:
        await store.close()


def test_a_key_opens_for_whom_it_was_made(tmp_path: Path) -> None:
    async def check() -> str:
        async with opened(tmp_path) as office:
            key, secret = await office.keys.create("laptop", tenant="acme", subject="ann", scope=Scope.READ, by=ADMIN)
            principal = await office.keys.authenticate(secret)
            assert re.fullmatch(r"wrn_[A-Za-z0-9_-]{43}", secret)
            assert principal == Principal(subject="ann", tenant="acme", scope=Scope.READ, key_id=key.id)
            assert [action for action, _ in await office.actions()] == ["key.create"]
        return secret

    secret = anyio.run(check)
    assert not [path for path in tmp_path.iterdir() if secret.encode() in path.read_bytes()]


def test_what_was_wrong_with_a_key_is_for_the_record_and_not_for_strangers(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as office:
            _, expired = await office.keys.create("short", ttl_s=60)
            _, revoked = await office.keys.create("gone")
            await office.keys.revoke("gone", by=ADMIN)
            office.clock.now += 61
            said = []
            for secret in (expired, revoked, f"wrn_{'x' * 43}", "wrn_short", "é", ""):
                with pytest.raises(Unauthenticated) as caught:
                    await office.keys.authenticate(secret, address="10.0.0.2", request_id="req_2")
                said.append(str(caught.value))
            refused = [reason for action, reason in await office.actions() if action == "auth.refuse"]
            assert refused == ["expired", "revoked", "unknown", "malformed", "malformed", "malformed"]
        assert len(set(said)) == 1

    anyio.run(check)


def test_a_key_that_is_bound_to_networks_is_valid_there_only(tmp_path: Path) -> None:
    """Clients whose address has the key show it in logs and to models: elsewhere it opens nothing."""

    async def check() -> None:
        async with opened(tmp_path) as office:
            key, secret = await office.keys.create("onyx", networks=("10.0.0.7", "fd00::/64"))
            for address in ("10.0.0.7", "::ffff:10.0.0.7", "fd00::99"):
                assert (await office.keys.authenticate(secret, address=address)).key_id == key.id
            for address in ("10.0.0.8", "fd00:0:0:1::1", "", "local uid 0", "10.0.0.7.evil"):
                with pytest.raises(Unauthenticated, match="not valid here"):
                    await office.keys.authenticate(secret, address=address)
            refused = [reason for action, reason in await office.actions() if action == "auth.refuse"]
            assert set(refused) == {"network"}
            assert (await office.keys.list())[0].networks == ("10.0.0.7", "fd00::/64")
            with pytest.raises(InvalidRequest, match="networks"):
                await office.keys.create("bad", networks=("10.0.0.7/8",))

    anyio.run(check)


def test_a_refused_key_is_audited_under_its_owner(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as office:
            key, secret = await office.keys.create("gone", subject="ann")
            await office.keys.revoke(key.id)
            with pytest.raises(Unauthenticated):
                await office.keys.authenticate(secret, address="10.0.0.2", request_id="req_2")
            await office.audit.flush()
            (row,) = (await office.store.audit(AuditQuery(action="auth.refuse"))).items
        entry = row.entry
        assert (entry.subject, entry.key_id, entry.address, entry.request_id) == ("ann", key.id, "10.0.0.2", "req_2")

    anyio.run(check)


def test_a_key_expires_even_while_it_is_remembered(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as office:
            _, secret = await office.keys.create("short", ttl_s=60)
            await office.keys.authenticate(secret)
            office.clock.now += 60
            with pytest.raises(Unauthenticated):
                await office.keys.authenticate(secret)

    anyio.run(check)


def test_a_revocation_by_another_process_is_noticed_within_a_second(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as office, opened(tmp_path) as other:
            key, secret = await office.keys.create("laptop")
            await office.keys.authenticate(secret)
            await other.keys.revoke(key.id)
            refused = False
            with anyio.fail_after(60):
                while not refused:
                    try:
                        await office.keys.authenticate(secret)
                        await anyio.sleep(0.02)
                    except Unauthenticated:
                        refused = True

    anyio.run(check)


def test_the_first_key_is_made_once(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as office:
            secret = await office.keys.ensure_first_key()
            assert secret is not None
            principal = await office.keys.authenticate(secret)
            again = await office.keys.ensure_first_key()
            await office.keys.revoke("first")
            after_revoking = await office.keys.ensure_first_key()
            assert (principal.subject, principal.scope) == ("admin", Scope.ADMIN)
            assert (again, after_revoking) == (None, None)

    anyio.run(check)


def test_a_name_is_free_again_when_its_key_was_revoked(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as office:
            first, _ = await office.keys.create("ci")
            with pytest.raises(Conflict):
                await office.keys.create("ci")
            await office.keys.revoke("ci")
            second, secret = await office.keys.create("ci")
            with pytest.raises(NotFound, match="already"):
                await office.keys.revoke(first.id)
            with pytest.raises(NotFound, match="keys list"):
                await office.keys.revoke("never")
            assert (await office.keys.authenticate(secret)).key_id == second.id
            assert [key.id for key in await office.keys.list()] == [first.id, second.id]

    anyio.run(check)


@pytest.mark.parametrize("name", ["", " a", "a ", "=1+1", "a\nb", "x" * 65, "a/b"])
def test_names_that_would_confuse_are_refused(tmp_path: Path, name: str) -> None:
    async def check() -> None:
        async with opened(tmp_path) as office:
            with pytest.raises(InvalidRequest, match="name"):
                await office.keys.create(name)

    anyio.run(check)


class KeysStore(MeddledStore):
    """A store that lets another caller act after all keys were read."""

    async def keys(self) -> tuple[ApiKey, ...]:
        found = await super().keys()
        await self.let_others_act()
        return found


def test_what_becomes_of_a_key_here_is_known_here_at_once(tmp_path: Path) -> None:
    async def check() -> None:
        store = KeysStore(tmp_path)
        await store.open()
        try:
            keys = Keys(store, Audit(store, Policy()))
            first, _ = await keys.create("first")
            assert await keys.find(first.id) == first
            second, _ = await keys.create("second")
            assert await keys.find(second.id) == second, "it is younger than what is remembered"
            assert await keys.find("key_never") is None
            third, _ = await keys.create("third")
            store.meanwhile = lambda: keys.revoke(third.id)
            found = await keys.find(third.id)
            assert found is not None
            assert found.revoked_at is not None, "it was revoked while they were read"
            found = await keys.find(third.id)
            assert found is not None
            assert found.revoked_at is not None
        finally:
            await store.close()

    anyio.run(check)


def test_a_name_is_that_of_the_key_in_force_and_not_of_one_that_expired(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as office:
            office.clock.now = time.time() - 1000
            await office.keys.create("ci", ttl_s=10)
            office.clock.now += 1000
            second, _ = await office.keys.create("ci")
            assert (await office.keys.revoke("ci")).id == second.id
            with pytest.raises(NotFound, match="expired"):
                await office.keys.revoke("ci")

    anyio.run(check)
