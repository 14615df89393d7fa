"""Store checks: the audit chain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from warren.domain.records import FIRST_HASH, AuditEntry, AuditQuery
from warren.testing.store_subject import make_entry

if TYPE_CHECKING:
    from warren.domain.records import AuditRow
    from warren.testing.store_subject import StoreSubject


async def _chain(subject: StoreSubject, after: int = 0) -> list[AuditRow]:
    return [row async for row in subject.store.chain(after)]


async def check_an_empty_chain_verifies(subject: StoreSubject) -> None:
    """An empty chain has no rows, and verifies."""
    assert await subject.store.verify() == (0, FIRST_HASH)
    assert await _chain(subject) == []
    assert (await subject.store.audit(AuditQuery())).total == 0


async def check_an_entry_comes_back_as_it_was(subject: StoreSubject) -> None:
    """Every field, in any script, and details of any JSON."""
    entry = make_entry(
        key_id="key_1",
        request_id="req_1",
        address="::1",
        sandbox_id="sbx_1",
        execution_id="exe_1",
        details={"deep": [1, 2.5, None, True, {"ключ": "half \ud800"}], "": ""},
    )
    await subject.store.append(entry)
    plain = AuditEntry(at=0.1, action="auth.refuse", outcome="unauthenticated")
    await subject.store.append(plain)

    assert [row.entry for row in await _chain(subject)] == [entry, plain]


async def check_each_row_follows_the_one_before(subject: StoreSubject) -> None:
    """Numbers have no gaps, each row carries the hash before it, and the last is what verify returns."""
    for _ in range(3):
        await subject.store.append(make_entry())
    rows = await _chain(subject)

    assert [row.seq for row in rows] == [1, 2, 3]
    assert [row.previous for row in rows] == [FIRST_HASH, rows[0].hash, rows[1].hash]
    assert len({row.hash for row in rows}) == 3
    assert await subject.store.verify() == (3, rows[-1].hash)


async def check_equal_entries_verify(subject: StoreSubject) -> None:
    """Details with numeric keys, tuples, integer times: changes by JSON do not break the chain."""
    details: dict[Any, Any] = {10: "a", 9: ("b",)}
    await subject.store.append(make_entry(at=5, details=details), make_entry(at=5, details=details))

    assert (await subject.store.verify())[0] == 2


async def check_entries_given_together_stay_together(subject: StoreSubject) -> None:
    """Concurrent appends: the entries of each call are adjacent, and all are stored."""
    async with anyio.create_task_group() as group:
        for number in range(40):
            entries = [make_entry(action=f"test.{number}", details={"part": part}) for part in range(3)]
            group.start_soon(subject.store.append, *entries)
    rows = await _chain(subject)
    parts = [(row.entry.action, row.entry.details["part"]) for row in rows]

    assert len(rows) == 120
    assert all(parts[at] == (parts[at - at % 3][0], at % 3) for at in range(120))
    assert (await subject.store.verify())[0] == 120


async def check_two_stores_write_one_chain(subject: StoreSubject) -> None:
    """Another store over the same data continues the same chain, at the same time."""
    async with subject.reopened() as other:
        async with anyio.create_task_group() as group:
            for number in range(60):
                group.start_soon((subject.store, other)[number % 2].append, make_entry())

        assert (await other.verify())[0] == 60
        assert await subject.store.verify() == await other.verify()


async def check_nothing_appended_is_nothing(subject: StoreSubject) -> None:
    """A call without entries adds no row."""
    await subject.store.append()

    assert await subject.store.verify() == (0, FIRST_HASH)


async def check_the_chain_can_be_read_from_anywhere(subject: StoreSubject) -> None:
    """Rows after a number, oldest first, over more rows than are read at once."""
    await subject.store.append(*(make_entry(details={"n": number}) for number in range(1203)))

    assert [row.seq for row in await _chain(subject, after=1200)] == [1201, 1202, 1203]
    assert [row.entry.details["n"] for row in await _chain(subject)] == list(range(1203))
    assert await _chain(subject, after=5000) == []
    assert (await subject.store.verify())[0] == 1203


async def check_old_rows_are_cut_off_and_the_rest_still_verifies(subject: StoreSubject) -> None:
    """Rows before a time are removed, oldest first; numbers go on, and readers learn the removed range."""
    store = subject.store
    await store.append(*(make_entry(at=float(number)) for number in range(1, 11)))
    rows = await _chain(subject)

    assert await store.audit_start() == (0, FIRST_HASH)
    assert await store.prune_audit(before=1.0) is None
    assert await store.prune_audit(before=5.0) == (1, 4, rows[3].hash)
    assert await store.audit_start() == (4, rows[3].hash)
    assert await store.prune_audit(before=5.0) is None
    assert await _chain(subject) == rows[4:]
    assert await store.verify() == (10, rows[-1].hash)
    await store.append(make_entry(at=11.0))
    assert (await store.audit(AuditQuery(limit=1))).total == 7
    assert (await store.audit(AuditQuery(action=rows[0].entry.action))).total == 7
    assert (await store.verify())[0] == 11
    assert await store.prune_audit(before=7.0) == (5, 6, rows[5].hash)
    assert (await store.verify())[0] == 11


async def check_the_last_row_is_never_cut_off(subject: StoreSubject) -> None:
    """The last row stays at any age: the next one refers to it."""
    await subject.store.append(*(make_entry(at=1.0) for _ in range(3)))
    while await subject.store.prune_audit(before=9.0) is not None:
        pass

    assert [row.seq for row in await _chain(subject)] == [3]
    assert (await subject.store.verify())[0] == 3


async def check_only_the_oldest_are_cut_off(subject: StoreSubject) -> None:
    """An old row after a newer one stays: the rest has no gaps."""
    await subject.store.append(*(make_entry(at=at) for at in (1.0, 9.0, 2.0, 9.0)))

    assert (await subject.store.prune_audit(before=5.0) or (0, 0))[:2] == (1, 1)
    assert await subject.store.prune_audit(before=5.0) is None
    assert [row.seq for row in await _chain(subject)] == [2, 3, 4]


async def check_the_audit_record_is_listed_newest_first_in_pages(subject: StoreSubject) -> None:
    """Pages follow each other, and each knows the total."""
    await subject.store.append(*(make_entry() for _ in range(5)))
    pages = [await subject.store.audit(AuditQuery(offset=offset, limit=2)) for offset in (0, 2, 4)]

    assert [row.seq for page in pages for row in page.items] == [5, 4, 3, 2, 1]
    assert [(page.total, page.offset, page.limit) for page in pages] == [(5, 0, 2), (5, 2, 2), (5, 4, 2)]


async def check_each_filter_of_the_audit_record_holds(subject: StoreSubject) -> None:
    """Each filter alone, and several together. `since` is included, `until` is not."""
    plain = AuditEntry(at=100.0, action="a.b", outcome="ok")
    await subject.store.append(
        plain,
        replace(plain, tenant="t"),
        replace(plain, tenant="t", subject="s"),
        replace(plain, action="c.d", at=200.0),
        replace(plain, sandbox_id="sbx_1"),
        replace(plain, sandbox_id="sbx_1", execution_id="exe_1"),
        replace(plain, request_id="req_1", at=300.0),
        replace(plain, subject="half \ud800"),
    )

    async def select(**fields: Any) -> set[int]:
        page = await subject.store.audit(AuditQuery(**fields))
        assert page.total == len(page.items)
        return {row.seq for row in page.items}

    assert await select() == {1, 2, 3, 4, 5, 6, 7, 8}
    assert await select(tenant="t") == {2, 3}
    assert await select(tenant="t", subject="s") == {3}
    assert await select(subject="half \ud800") == {8}
    assert await select(action="c.d") == {4}
    assert await select(sandbox_id="sbx_1") == {5, 6}
    assert await select(sandbox_id="") == {1, 2, 3, 4, 7, 8}
    assert await select(execution_id="exe_1") == {6}
    assert await select(request_id="req_1") == {7}
    assert await select(since=200.0) == {4, 7}
    assert await select(until=200.0) == {1, 2, 3, 5, 6, 8}
    assert await select(since=200.0, until=300.0) == {4}
    assert await select(tenant="t", action="c.d") == set()
