"""Audit retention, and the entries about rows that were cut off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import anyio

from unit.stores.sqlite_file import open_store
from warren.core.audit.log import Audit
from warren.core.audit.retention import Retention
from warren.core.policy.policy import Policy
from warren.domain.records import AuditQuery
from warren.testing.store_subject import make_entry

if TYPE_CHECKING:
    from pathlib import Path

    from warren.stores.sqlite import SqliteStore

DAY_S = 86_400
PROGRAM = (sys.executable, "-c", "from warren.cli.main import main; main()")


async def prepare(folder: Path, *, days: int | None, rows: int = 5) -> str:
    """Have a record of so many rows, one a day, kept as long as that; returns its head of four days ago."""
    async with open_store(folder) as store:
        now = time.time()
        await store.append(*(make_entry(at=now - age * DAY_S - 60) for age in reversed(range(rows))))
        old = [row async for row in store.chain()]
        policy = Policy(audit_days=days)
        audit = Audit(store, policy)
        retention = Retention(store, audit, policy)
        with anyio.fail_after(60):
            if days is None:
                await retention.run()
            else:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(retention.run)
                    await wait_for_cut(store)
                    tasks.cancel_scope.cancel()
        return f"{old[0].seq}:{old[0].hash}"


async def wait_for_cut(store: SqliteStore) -> None:
    while not (await store.audit(AuditQuery(action="audit.prune"))).items:  # noqa: ASYNC110 - a store has no events
        await anyio.sleep(0.01)


def verify(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, "audit", "verify", "--data-dir", str(folder), *arguments],
        env={"PATH": os.defpath, "HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_rows_older_than_the_operator_wants_are_cut_off_and_the_record_says_so(tmp_path: Path) -> None:
    async def check() -> None:
        head = await prepare(tmp_path, days=2)
        async with open_store(tmp_path) as store:
            rows = [row async for row in store.chain()]
            assert [row.seq for row in rows] == [4, 5, 6]
            assert rows[-1].entry.action == "audit.prune"
            assert rows[-1].entry.details == {"first": 1, "last": 3, "last_hash": rows[0].previous}
            assert head.startswith("1:")
            known.extend([head, f"3:{rows[0].previous}"])

    known: list[str] = []
    anyio.run(check)

    whole = verify(tmp_path, "--json")
    assert json.loads(whole.stdout)["rows"] == 3
    assert json.loads(whole.stdout)["pruned"] == 3
    assert verify(tmp_path, "--known", known[1]).returncode == 0
    gone = verify(tmp_path, "--known", known[0])
    assert gone.returncode == 1
    assert "row 1 of the audit record was cut off with all before row 4: keep a later head" in gone.stderr


def test_unless_the_operator_says_so_it_is_kept_for_ever(tmp_path: Path) -> None:
    async def check() -> None:
        await prepare(tmp_path, days=None)
        async with open_store(tmp_path) as store:
            assert (await store.audit_start())[0] == 0
            assert (await store.audit(AuditQuery())).total == 5

    anyio.run(check)


def test_much_is_cut_off_piece_by_piece(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store(tmp_path) as store:
            await store.append(*(make_entry(at=1.0) for _ in range(4500)))
            cut = await Retention(store, Audit(store, Policy()), Policy()).prune(before=9.0)

            assert cut == 4499
            assert [row.seq async for row in store.chain()] == [4500, 4501]
            assert (await store.verify())[0] == 4501

    anyio.run(check)
