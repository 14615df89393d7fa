"""Blobs: contents on disk with a row each; others are swept."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from warren.blobs.filesystem import Blobs
from warren.domain.errors import NotFound, StoreError, TooLarge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


async def pieces(*contents: bytes) -> AsyncIterator[bytes]:
    for content in contents:
        yield content


async def read(blobs: Blobs, name: str) -> bytes:
    async with blobs.read(name) as content:
        found = b"".join([piece async for piece in content])
    assert len(found) == content.size
    return found


async def keep(blobs: Blobs, content: bytes) -> str:
    async with blobs.write(content) as blob:
        return blob.name


async def nothing() -> set[str]:
    return set()


def test_a_content_comes_back_whole_or_in_pieces_as_it_went_in(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path / "a" / "b"))

    async def story() -> None:
        async with blobs.write(b"one") as one, blobs.write(pieces(b"t" * 3_000_000, b"", b"wo")) as two:
            pass
        assert await read(blobs, one.name) == b"one"
        assert await read(blobs, two.name) == b"t" * 3_000_000 + b"wo"
        assert (one.size, one.sha256) == (3, hashlib.sha256(b"one").hexdigest())
        assert (two.size, two.sha256) == (3_000_002, hashlib.sha256(b"t" * 3_000_000 + b"wo").hexdigest())
        async with blobs.write(b"") as empty:
            pass
        assert await read(blobs, empty.name) == b""

    anyio.run(story)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o077 == 0


def test_what_is_not_written_down_is_not_kept(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path))

    async def refuse() -> None:
        async with blobs.write(b"one"):
            raise NotFound("the row could not be written")

    async def leave() -> None:
        with anyio.CancelScope() as scope:
            async with blobs.write(b"one"):
                scope.cancel()
                await anyio.sleep_forever()

    async def send_too_much() -> None:
        async with blobs.write(pieces(b"12345", b"67890"), max_bytes=9):
            raise AssertionError

    async def story() -> None:
        with pytest.raises(NotFound):
            await refuse()
        await leave()
        with pytest.raises(TooLarge):
            await send_too_much()

    anyio.run(story)
    assert os.listdir(tmp_path) == []


def test_what_is_removed_can_be_read_to_its_end_and_then_not_again(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path))

    async def story() -> None:
        name = await keep(blobs, b"one")
        async with blobs.read(name) as content:
            await blobs.remove(name)
            assert [piece async for piece in content] == [b"one"]
        with pytest.raises(NotFound):
            await read(blobs, name)
        await blobs.remove(name)

    anyio.run(story)


@pytest.mark.parametrize("name", ["/etc/hostname", "../secret", "", ".", "x" * 32, "0" * 31, "0" * 32 + "\n"])
def test_a_name_is_never_a_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    blobs = Blobs(str(tmp_path / "blobs"))
    with pytest.raises(NotFound):
        anyio.run(read, blobs, name)


def test_a_sweep_removes_what_no_row_names_and_nothing_that_is_being_written(tmp_path: Path) -> None:
    blobs, other = Blobs(str(tmp_path)), Blobs(str(tmp_path))

    async def story() -> None:
        assert await Blobs(str(tmp_path / "none")).sweep(nothing) == 0
        kept, lost = await keep(blobs, b"kept"), await keep(blobs, b"lost")

        async def known() -> set[str]:
            return {kept}

        async with other.write(b"new") as new:
            assert await blobs.sweep(known) == 1
        with pytest.raises(NotFound):
            await read(blobs, lost)
        assert await read(blobs, kept) == b"kept"
        assert await read(blobs, new.name) == b"new"

    anyio.run(story)


def test_more_leftovers_than_a_process_may_open_are_swept_all_the_same(tmp_path: Path) -> None:
    for number in range(400):
        (tmp_path / f"{number:032x}").write_bytes(b"left")
    program = (
        "import resource, sys, anyio; from warren.blobs.filesystem import Blobs\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))\n"
        "async def nothing(): return set()\n"
        "print(anyio.run(Blobs(sys.argv[1]).sweep, nothing))\n"
    )

    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)

    assert done.stdout == "400\n"
    assert os.listdir(tmp_path) == []


def test_a_sweep_leaves_what_gets_its_row_while_it_looks(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path))

    async def story() -> None:
        rows: list[set[str]] = [set(), {await keep(blobs, b"new")}]

        async def known() -> set[str]:
            return rows.pop(0)

        assert await blobs.sweep(known) == 0

    anyio.run(story)
    assert len(os.listdir(tmp_path)) == 1


def test_what_a_killed_process_was_writing_is_swept(tmp_path: Path) -> None:
    program = (
        "import sys, anyio; from warren.blobs.filesystem import Blobs\n"
        "async def main():\n"
        "    async with Blobs(sys.argv[1]).write(b'half'):\n"
        "        print('written', flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        assert anyio.run(Blobs(str(tmp_path)).sweep, nothing) == 0
        writer.kill()
    assert anyio.run(Blobs(str(tmp_path)).sweep, nothing) == 1
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fails_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=os.strerror(errno.ENOTDIR)):
        anyio.run(keep, Blobs(str(tmp_path / "file" / "blobs")), b"one")
