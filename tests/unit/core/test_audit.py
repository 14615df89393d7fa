"""Audit record of a service: in order, bounded, and never dropped."""

from __future__ import annotations

import json
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.core.audit import log as audit_module
from warren.core.audit.details import MOST_BYTES, bound_details
from warren.core.audit.log import ALL, EACH, WINDOW_S, Audit, LoginFailures
from warren.core.policy.policy import Policy
from warren.domain.errors import Forbidden, StoreError
from warren.domain.records import AuditQuery, Caller, Principal, Scope
from warren.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from warren.domain.records import AuditEntry

ANN = Caller(principal=Principal(subject="ann", key_id="key_1"), request_id="req_1", address="10.0.0.1")
BOB = Caller(principal=Principal(subject="bob"), request_id="req_2")
ADMIN = Caller(principal=Principal(subject="root", scope=Scope.ADMIN), request_id="req_3")


class Faltering(SqliteStore):
    """The real store, on a disk that can be full."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.full = False
        self.appends = 0
        self.written = anyio.Event()

    async def append(self, *entries: AuditEntry) -> None:
        if self.full:
            raise StoreError("the disk is full")
        self.appends += 1
        await super().append(*entries)
        self.written.set()


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[Audit, Faltering]]:
    store = Faltering(folder)
    await store.open()
    try:
        yield Audit(store, Policy()), store
    finally:
        await store.close()


async def actions(store: Faltering) -> list[str]:
    return [row.entry.action async for row in store.chain()]


def test_an_entry_says_who_did_what_from_where(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as (audit, store):
            audit.note(
                ANN, "file.write", sandbox_id="sbx_1", execution_id="exe_1", outcome="too_large", path="a", bytes=7
            )
            audit.note(None, "sandbox.stop", reason="idle")
            await audit.flush()
            newest, first = (await store.audit(AuditQuery())).items
        entry = first.entry
        assert (entry.tenant, entry.subject, entry.key_id) == ("default", "ann", "key_1")
        assert (entry.request_id, entry.address, entry.outcome) == ("req_1", "10.0.0.1", "too_large")
        assert (entry.sandbox_id, entry.execution_id) == ("sbx_1", "exe_1")
        assert entry.details == {"path": "a", "bytes": 7}
        assert (newest.entry.subject, newest.entry.outcome) == ("", "ok")

    anyio.run(check)


def test_entries_are_written_in_their_order_and_many_at_once(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as (audit, store):
            async with anyio.create_task_group() as group:
                group.start_soon(audit.run)
                for number in range(1000):
                    audit.note(ANN, f"a.{number}")
                await audit.flush()
                group.cancel_scope.cancel()
            assert await actions(store) == [f"a.{number}" for number in range(1000)]
            assert store.appends < 20
            assert await audit.verify() == await store.verify()

    anyio.run(check)


def test_what_the_store_refuses_is_kept_and_written_later(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as (audit, store):
            store.full = True
            async with anyio.create_task_group() as group:
                group.start_soon(audit.run)
                with pytest.raises(StoreError):
                    await audit.record(ANN, "sandbox.create")
                audit.note(ANN, "sandbox.delete")
                assert audit.backlog == 2
                store.full = False
                with anyio.fail_after(60):
                    await store.written.wait()
                await audit.flush()
                group.cancel_scope.cancel()
            assert await actions(store) == ["sandbox.create", "sandbox.delete"]

    anyio.run(check)


def test_what_cannot_be_recorded_is_not_done(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as (audit, store):
            store.full = True
            audit.check_writable()
            for _ in range(audit_module.BACKLOG):
                audit.note(ANN, "file.read")
            with pytest.raises(StoreError, match="cannot be recorded"):
                audit.check_writable()
            store.full = False
            await audit.flush()
            audit.check_writable()
            assert (await store.verify())[0] == audit_module.BACKLOG

    anyio.run(check)


def test_entries_that_are_large_fill_the_line_sooner(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as (audit, _):
            large = audit_module.BACKLOG_BYTES // MOST_BYTES * 2
            for _ in range(large):
                audit.note(ANN, "execution.finish", stdout="x" * 2 * MOST_BYTES)
            assert large < audit_module.BACKLOG
            with pytest.raises(StoreError):
                audit.check_writable()

    anyio.run(check)


def test_a_flush_that_is_cancelled_writes_nothing_twice(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as (audit, store):
            for number in range(600):
                audit.note(ANN, f"a.{number}")
            with anyio.CancelScope() as scope:
                scope.cancel()
                await audit.flush()
            await audit.flush()
            assert await actions(store) == [f"a.{number}" for number in range(600)]

    anyio.run(check)


def test_without_the_admin_scope_one_reads_only_what_one_did(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as (audit, _):
            audit.note(ANN, "file.read")
            audit.note(BOB, "file.write")
            anns = await audit.list(ANN, AuditQuery())
            everybodys = await audit.list(ADMIN, AuditQuery())
            bobs = await audit.list(ADMIN, AuditQuery(subject="bob"))
            with pytest.raises(Forbidden, match="admin"):
                await audit.list(ANN, AuditQuery(subject="bob"))
        assert [row.entry.action for row in anns.items] == ["file.read"]
        assert [row.entry.action for row in everybodys.items] == ["file.write", "file.read"]
        assert [row.entry.action for row in bobs.items] == ["file.write"]

    anyio.run(check)


def test_an_export_holds_the_rows_of_its_time(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as (audit, _):
            for action in ("a.one", "a.two", "a.three"):
                audit.note(ANN, action)
            rows = [row async for row in audit.export()]
            middle = rows[1].entry.at
            since = [row.entry.action async for row in audit.export(since=middle)]
            until = [row.entry.action async for row in audit.export(until=middle)]
        assert [row.seq for row in rows] == [1, 2, 3]
        assert since == ["a.two", "a.three"]
        assert until == ["a.one"]

    anyio.run(check)


def test_many_failed_logins_become_one_entry(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as (audit, store):
            for _ in range(EACH + 40):
                audit.refuse("unknown", address="10.6.6.6")
            audit.refuse("unknown", address="10.0.0.7")
            await audit.close()
            rows = [row.entry async for row in store.chain()]
        alone = [entry for entry in rows if entry.action == "auth.refuse"]
        assert len(alone) == EACH + 1
        assert rows[-1].action == "auth.refuse_many"
        assert rows[-1].details == {"count": 40, "addresses": {"10.6.6.6": 40}}

    anyio.run(check)


def test_a_new_minute_counts_anew() -> None:
    now = 0.0
    refusals = LoginFailures(lambda: now)
    first = []
    for _ in range(EACH + 5):
        refusals.collect()
        first.append(refusals.count("a"))
    now = WINDOW_S
    collected = refusals.collect()

    assert first.count(True) == EACH
    assert collected == {"count": 5, "addresses": {"a": 5}}
    assert refusals.count("a")
    assert refusals.collect() is None


def test_however_many_addresses_fail_the_entries_of_a_minute_are_bounded() -> None:
    refusals = LoginFailures(lambda: 0.0)
    refusals.collect()
    alone = sum(refusals.count(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}") for n in range(5000))
    rest = refusals.collect(now=True)

    assert alone == ALL
    assert rest is not None
    assert rest["count"] == 5000 - ALL
    assert len(rest["addresses"]) <= 20


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.characters(categories=["Cs"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)


@settings(max_examples=50)
@given(details=st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
def test_details_are_always_json_that_can_be_written(details: dict[str, Any]) -> None:
    bounded, _ = bound_details(details)

    json.dumps(bounded, allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "value",
    [
        "x" * 100_000,
        "\U0001f600" * 100_000,
        "\0" * 100_000,
        [{"path": "p" * 50, "size": 1}] * 10_000,
        {f"key{n}": n for n in range(50_000)},
        {"k" * 100_000: 1},
        b"\xff" * 100_000,
        10**6000,
        [[[[[[[[[["deep"]]]]]]]]]],
    ],
    ids=range(9),
)
def test_details_that_are_too_large_are_cut_and_say_so(value: Any) -> None:
    bounded, size = bound_details({"first": "kept", "value": value})
    written = json.dumps(bounded)

    assert len(written) <= MOST_BYTES
    assert size <= MOST_BYTES
    assert bounded["first"] == "kept"
    assert "more" in written or len(json.dumps(value, default=repr) if value != 10**6000 else "x" * 5000) < MOST_BYTES


def test_small_details_stay_as_they_are() -> None:
    details = {"a": "é", "b": [1, 2.5, None, True], "c": {"d": "e"}}

    assert bound_details(details)[0] == details
    assert bound_details({"n": math.nan, "i": math.inf})[0] == {"n": "nan", "i": "inf"}
