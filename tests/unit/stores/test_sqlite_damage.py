"""A damaged or foreign file, one of a later version, or a full disk: an error message, never a wrong result."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import subprocess
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.stores.sqlite_file import open_store, tamper
from warren.domain.errors import StoreError
from warren.domain.records import AuditQuery, SandboxQuery
from warren.domain.values import MIB
from warren.testing.store_subject import make_entry, make_execution, make_result, make_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = 4096


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")

    async def main() -> None:
        async with open_store(folder) as store:
            for _ in range(30):
                sandbox = make_sandbox()
                await store.add(sandbox)
                for _ in range(5):
                    await store.record(make_execution(sandbox, result=make_result(), finished_at=1.5))
            await store.append(*(make_entry() for _ in range(500)))

    anyio.run(main)
    return {name: (folder / name).read_bytes() for name in ("warren.db", "audit.key")}


@pytest.fixture
def folder(content: dict[str, bytes], tmp_path: Path) -> Path:
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o600)
    return tmp_path


async def use(folder: Path) -> None:
    async with open_store(folder) as store:
        for sandbox in (await store.list(SandboxQuery(limit=100))).items:
            await store.executions(sandbox.id)
            await store.record(make_execution(sandbox))
        await store.audit(AuditQuery(limit=1000))
        await store.append(make_entry())
        await store.verify()


def refusal(folder: Path) -> str:
    with pytest.raises(StoreError) as caught:
        anyio.run(use, folder)
    message = str(caught.value)
    assert "\n" not in message
    assert "warren.db" in message
    return message


def test_what_is_no_database_is_refused(folder: Path) -> None:
    (folder / "warren.db").write_bytes(b"hello, world\n" * 1000)

    assert "is no database" in refusal(folder)
    assert (folder / "warren.db").read_bytes() == b"hello, world\n" * 1000


@pytest.mark.parametrize("size", [100, PAGE, PAGE + 1, 10 * PAGE, 100_000])
def test_a_truncated_file_is_refused(folder: Path, size: int) -> None:
    os.truncate(folder / "warren.db", size)

    assert "restore a backup" in refusal(folder)


def test_an_emptied_or_removed_file_is_not_begun_anew(folder: Path) -> None:
    os.truncate(folder / "warren.db", 0)
    assert "is empty, though" in refusal(folder)

    os.unlink(folder / "warren.db")
    assert "is empty, though" in refusal(folder)


def overwrite(path: Path, chance: random.Random, *, share: float) -> None:
    """Overwrite a share of the pages but the first, with nonsense or with nothing."""
    pages = os.path.getsize(path) // PAGE
    with open(path, "r+b") as file:
        for page in chance.sample(range(1, pages), max(1, int(pages * share))):
            file.seek(page * PAGE)
            file.write(chance.choice([bytes(PAGE), chance.randbytes(PAGE)]))


@pytest.mark.parametrize("seed", range(12))
def test_overwritten_pages_are_refused(folder: Path, seed: int) -> None:
    overwrite(folder / "warren.db", random.Random(seed), share=0.05)

    assert "is damaged" in refusal(folder)


@pytest.mark.parametrize("seed", range(6))
def test_a_file_damaged_while_it_is_open_gives_errors_and_no_nonsense(folder: Path, seed: int) -> None:
    """Every answer is one that was there, or an error; and the store can be closed."""

    async def main() -> None:
        async with open_store(folder) as store:
            known = {sandbox.id: sandbox for sandbox in (await store.list(SandboxQuery(limit=100))).items}
            overwrite(folder / "warren.db", random.Random(seed), share=0.5)
            failures = 0
            for sandbox in known.values():
                try:
                    assert await store.get(sandbox.id) == sandbox
                    assert (await store.executions(sandbox.id)).total == 5
                    await store.record(make_execution(sandbox))
                except StoreError:
                    failures += 1
            assert failures

    anyio.run(main)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sandboxes SET limits = '{'",
        "UPDATE sandboxes SET limits = '{\"pids\": -1}'",
        "UPDATE sandboxes SET limits = '{\"unknown\": 1}'",
        "UPDATE sandboxes SET status = 'asleep'",
        "UPDATE sandboxes SET env = '[]'",
        "UPDATE sandboxes SET metadata = x'00ff'",
        "UPDATE sandboxes SET image = 5.5, engine = x'ff'",
        "UPDATE executions SET result = '{}'",
        "UPDATE executions SET result = 'nonsense'",
        "UPDATE executions SET kind = 'dance'",
    ],
)
def test_a_row_of_nonsense_is_an_error(folder: Path, statement: str) -> None:
    tamper(folder, statement)

    assert "is damaged (" in refusal(folder)


def test_a_later_versions_file_is_refused(folder: Path) -> None:
    tamper(folder, "INSERT INTO schema_version VALUES (99, 0)")

    assert "is of a later version of Warren (schema 99" in refusal(folder)


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "warren.db")) as connection:
        connection.execute("CREATE TABLE recipes (name)")
        connection.commit()

    assert "another program's" in refusal(tmp_path)
    assert not (tmp_path / "audit.key").exists()


def test_a_folder_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used"):
        anyio.run(use, tmp_path / "file" / "deeper")

    (tmp_path / "taken" / "warren.db").mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be opened"):
        anyio.run(use, tmp_path / "taken")


def test_a_file_moved_away_under_a_store_is_noticed(folder: Path) -> None:
    async def main() -> None:
        async with open_store(folder) as store:
            await store.ping()
            os.rename(folder / "warren.db", folder / "elsewhere.db")
            with pytest.raises(StoreError, match="restart the service"):
                await store.ping()

    anyio.run(main)


def test_what_was_removed_does_not_stay_in_the_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_store(tmp_path) as store:
            sandbox = make_sandbox(env={"TOKEN": "hunter2hunter2"})
            await store.add(sandbox)
            await store.remove(sandbox.id)

    anyio.run(main)
    assert b"hunter2" not in (tmp_path / "warren.db").read_bytes()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system of one megabyte")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={MIB}", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_loses_nothing_and_recovers_when_there_is_room(small_disk: Path) -> None:
    async def main() -> None:
        async with open_store(small_disk) as store:
            sandbox = make_sandbox()
            await store.add(sandbox)
            (small_disk / "filler").write_bytes(bytes(256 * 1024))
            kept, messages = 0, set[str]()

            async def write() -> None:
                nonlocal kept
                for _ in range(60):
                    try:
                        await store.append(make_entry(details={"padding": "x" * 2000}))
                        kept += 1
                    except StoreError as exc:
                        messages.add(str(exc))

            async with anyio.create_task_group() as group:
                for _ in range(8):
                    group.start_soon(write)
            assert kept
            assert messages == {f"there is no room left for {small_disk}/warren.db: make room on its disk"}
            assert await store.get(sandbox.id) == sandbox
            assert (await store.verify())[0] == kept

            os.unlink(small_disk / "filler")
            await store.ping()
            await store.append(make_entry())
            assert (await store.verify())[0] == kept + 1

    anyio.run(main)


def test_a_disk_without_any_room_is_one_sentence(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(MIB - 2 * PAGE))

    with pytest.raises(StoreError, match=r"make room|No space left"):
        anyio.run(use, small_disk)

    os.unlink(small_disk / "filler")
    anyio.run(use, small_disk)
