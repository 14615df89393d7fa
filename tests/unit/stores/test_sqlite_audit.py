"""Verification of the audit chain names every manipulation and its row."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.stores.sqlite_file import open_store, tamper
from warren.domain.errors import Conflict, StoreError
from warren.domain.records import AuditQuery
from warren.testing.store_subject import make_entry

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 1200
SWAP = (
    "UPDATE audit SET seq = -1 WHERE seq = 7",
    "UPDATE audit SET seq = 7 WHERE seq = 12",
    "UPDATE audit SET seq = 12 WHERE seq = -1",
)
CLOSE = "UPDATE audit SET seq = -seq - 1 WHERE seq < 0"
SET_BACK = "UPDATE audit_head SET seq = 1190, hash = (SELECT hash FROM audit WHERE seq = 1190)"
COPY = (
    "INSERT INTO audit SELECT {}, at, action, outcome, tenant, subject, key_id, request_id, address, sandbox_id, "
    "execution_id, details, {}, hash FROM audit WHERE seq = {}"
)
TAMPERINGS = {
    "an edited action": (["UPDATE audit SET action = 'x' WHERE seq = 5"], "row 5 .* was edited"),
    "an edited time": (["UPDATE audit SET at = at + 0.001 WHERE seq = 600"], "row 600 .* was edited"),
    "edited details": (["UPDATE audit SET details = '{}' WHERE seq = 1"], "row 1 .* was edited, or audit.key"),
    "details that are no JSON": (["UPDATE audit SET details = '{' WHERE seq = 3"], "row 3 .* was edited"),
    "details that are no object": (["UPDATE audit SET details = '[]' WHERE seq = 3"], "row 3 .* was edited"),
    "a time that is text": (["UPDATE audit SET at = 'now' WHERE seq = 3"], "row 3 .* was edited"),
    "text hidden from filters": (["UPDATE audit SET subject = x'616e6e' WHERE seq = 3"], "row 3 .* was edited"),
    "an edited hash": (["UPDATE audit SET hash = 'ü' WHERE seq = 4"], "row 4 .* was edited"),
    "an edited previous hash": (["UPDATE audit SET previous = 'ü' WHERE seq = 4"], "row 4 .* was edited"),
    "a hash taken along": (
        ["UPDATE audit SET action = 'x', hash = (SELECT hash FROM audit WHERE seq = 4) WHERE seq = 5"],
        "row 5 .* was edited",
    ),
    "a deleted row": (["DELETE FROM audit WHERE seq = 9"], "row 9 .* is missing"),
    "deleted rows": (["DELETE FROM audit WHERE seq BETWEEN 500 AND 1000"], "row 500 .* is missing"),
    "a deleted first row": (["DELETE FROM audit WHERE seq = 1"], "row 1 .* is missing"),
    "a closed gap": (
        ["DELETE FROM audit WHERE seq = 9", "UPDATE audit SET seq = -seq WHERE seq > 9", CLOSE],
        "row 9 .* was moved: it was row 10",
    ),
    "rows that changed places": (list(SWAP), "row 7 .* was moved: it was row 12"),
    "a copied row": (
        ["DELETE FROM audit WHERE seq = 8", COPY.format(8, "previous", 1)],
        "row 8 .* was moved: it was row 1",
    ),
    "a cut end": (["DELETE FROM audit WHERE seq > 1190"], "row 1191 .* is missing: .* cut off at its end, 1200 rows"),
    "a cut end with the head set back": (
        ["DELETE FROM audit WHERE seq > 1190", SET_BACK],
        "the head .* was edited",
    ),
    "everything gone": (["DELETE FROM audit"], "row 1 .* is missing: .* 1200 rows"),
    "everything gone with its head": (["DELETE FROM audit", "DELETE FROM audit_head"], "the head .* is missing"),
    "a head of nonsense": (["UPDATE audit_head SET seq = 'x', hash = x'00', seal = 5"], "the head .* was edited"),
    "an added row": (
        [COPY.format(1201, "hash", 1200)],
        "row 1201 .* was edited",
    ),
}


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")

    async def main() -> None:
        async with open_store(folder) as store:
            await store.append(*(make_entry(details={"n": number}, subject="ann") for number in range(ROWS)))

    anyio.run(main)
    return folder


@pytest.fixture
def copy(chain: Path, tmp_path: Path) -> Path:
    for name in ("warren.db", "audit.key"):
        shutil.copy(chain / name, tmp_path / name)
    return tmp_path


async def verify(folder: Path) -> tuple[int, str]:
    async with open_store(folder) as store:
        return await store.verify()


@pytest.mark.parametrize("what", TAMPERINGS)
def test_verify_names_the_first_row_that_is_wrong(copy: Path, what: str) -> None:
    statements, message = TAMPERINGS[what]
    tamper(copy, *statements)

    with pytest.raises(Conflict, match=message):
        anyio.run(verify, copy)


def test_an_untouched_chain_verifies(copy: Path) -> None:
    assert anyio.run(verify, copy)[0] == ROWS


@pytest.mark.parametrize(
    "statements",
    [
        ["DELETE FROM audit WHERE seq > 1190", SET_BACK],
        ["DELETE FROM audit", "DELETE FROM audit_head"],
        [COPY.format(1201, "hash", 1200)],
    ],
)
def test_nothing_is_added_to_a_chain_whose_end_was_changed(copy: Path, statements: list[str]) -> None:
    """It would be sealed again, and the change never found."""
    tamper(copy, *statements)

    async def main() -> None:
        async with open_store(copy) as store:
            with pytest.raises(StoreError, match="warren audit verify"):
                await store.append(make_entry())
            with pytest.raises(Conflict):
                await store.verify()

    anyio.run(main)


def test_a_chain_cut_under_a_running_store_is_not_continued(copy: Path) -> None:
    async def main() -> None:
        async with open_store(copy) as store:
            await store.append(make_entry())
            await anyio.to_thread.run_sync(
                tamper,
                copy,
                "DELETE FROM audit WHERE seq > 1190",
                SET_BACK,
            )
            with pytest.raises(StoreError, match="changed from outside"):
                await store.append(make_entry())

    anyio.run(main)


def test_triggers_refuse_to_change_a_row(copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(copy / "warren.db")) as connection:
        for statement in ("UPDATE audit SET at = 1", "DELETE FROM audit", "DELETE FROM audit_head"):
            with pytest.raises(sqlite3.IntegrityError, match="never"):
                connection.execute(statement)


def test_a_missing_secret_is_an_error_where_there_are_rows(copy: Path) -> None:
    os.unlink(copy / "audit.key")

    with pytest.raises(StoreError, match=r"audit\.key is missing"):
        anyio.run(verify, copy)
    assert not (copy / "audit.key").exists()


def test_a_secret_that_every_user_can_read_is_refused_and_the_command_is_named(copy: Path) -> None:
    (copy / "audit.key").chmod(0o644)

    with pytest.raises(StoreError, match=r"chmod 600 .*audit\.key"):
        anyio.run(verify, copy)
    (copy / "audit.key").chmod(0o640)
    assert anyio.run(verify, copy)[0] == ROWS


def test_another_secret_is_found_out(copy: Path) -> None:
    (copy / "audit.key").write_bytes(b"x" * 32)

    async def main() -> None:
        async with open_store(copy) as store:
            with pytest.raises(Conflict, match=r"row 1 .* audit\.key is not the one"):
                await store.verify()
            with pytest.raises(StoreError, match=r"audit\.key"):
                await store.append(make_entry())
            assert (await store.audit(AuditQuery())).total == ROWS

    anyio.run(main)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_damaged_secret_is_refused(copy: Path, content: bytes) -> None:
    (copy / "audit.key").write_bytes(content)

    with pytest.raises(StoreError, match=r"audit\.key is damaged"):
        anyio.run(verify, copy)


def test_the_chain_verifies_while_it_grows(copy: Path) -> None:
    async def main() -> None:
        async with open_store(copy) as store, anyio.create_task_group() as group:
            grown = anyio.Event()

            async def grow() -> None:
                for _ in range(100):
                    await store.append(make_entry())
                grown.set()

            group.start_soon(grow)
            while not grown.is_set():
                assert (await store.verify())[0] >= ROWS
            assert (await store.verify())[0] == ROWS + 100

    anyio.run(main)


def test_file_and_secret_are_for_their_owner_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_store(tmp_path / "new") as store:
            await store.append(make_entry())
            modes = {entry.name: entry.stat().st_mode & 0o777 for entry in os.scandir(tmp_path / "new")}

        assert modes == dict.fromkeys(("warren.db", "warren.db-wal", "warren.db-shm", "audit.key"), 0o600)

    before = os.umask(0)
    try:
        anyio.run(main)
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
