"""The start of a pruned audit record: a cut by anything but the store is detected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from unit.stores.sqlite_file import open_store, tamper
from warren.domain.errors import Conflict
from warren.testing.store_subject import make_entry

if TYPE_CHECKING:
    from pathlib import Path

    from warren.stores.sqlite import SqliteStore

ROWS, CUT = 1200, 400


async def fill(store: SqliteStore) -> None:
    await store.append(*(make_entry(at=float(number)) for number in range(1, ROWS + 1)))
    assert await store.prune_audit(before=CUT + 1.0) is not None


TAMPERINGS = {
    "more cut off": (["DELETE FROM audit WHERE seq <= 500"], "row 401 .* is missing"),
    "more cut off, and said so": (
        ["DELETE FROM audit WHERE seq < 500", "UPDATE audit_start SET seq = 499"],
        "start of the audit record was edited",
    ),
    "a start that is another row": (
        [
            "UPDATE audit_start SET seq = 500, hash = (SELECT hash FROM audit WHERE seq = 500)",
            "DELETE FROM audit WHERE seq <= 500",
        ],
        "start of the audit record was edited",
    ),
    "a start that was moved to the head": (
        [
            "UPDATE audit_start SET (seq, hash, seal) = (SELECT seq, hash, seal FROM audit_head)",
            "DELETE FROM audit",
        ],
        "start of the audit record was edited",
    ),
    "a start that says that nothing was cut off": (
        [f"UPDATE audit_start SET seq = 0, hash = '{'0' * 64}'"],
        "row 1 .* is missing",
    ),
    "no start": (["DELETE FROM audit_start"], "start of the audit record was edited"),
    "a start that is nonsense": (
        ["UPDATE audit_start SET seq = 'x', hash = 3"],
        "start of the audit record was edited",
    ),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_cut_by_another_program_is_detected(tmp_path: Path, name: str) -> None:
    statements, words = TAMPERINGS[name]

    async def check() -> None:
        async with open_store(tmp_path) as store:
            await fill(store)
            assert (await store.verify())[0] == ROWS
        tamper(tmp_path, *statements)
        async with open_store(tmp_path) as store:
            with pytest.raises(Conflict, match=words):
                await store.verify()

    anyio.run(check)


def test_a_start_that_is_not_ours_is_not_moved_on(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store(tmp_path) as store:
            await fill(store)
        tamper(tmp_path, "UPDATE audit_start SET seq = 450")
        async with open_store(tmp_path) as store:
            with pytest.raises(Conflict, match="start of the audit record was edited"):
                await store.prune_audit(before=900.0)

    anyio.run(check)


def test_rows_cut_off_during_a_verification_are_not_missed(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store(tmp_path) as store:
            await fill(store)
            found: list[int] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(prune_slowly, store)
                for _ in range(20):
                    found.append((await store.verify())[0])  # noqa: PERF401 - one after the other

        assert set(found) == {ROWS}

    anyio.run(check)


async def prune_slowly(store: SqliteStore) -> None:
    for before in range(CUT, ROWS, 20):
        await store.prune_audit(before=float(before))
