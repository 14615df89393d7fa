"""The use cases of files, over the bare engine and the real store."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import tempfile
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.core.estate import ANN, BOB, READER, Estate
from warren.core.files.files import Files
from warren.core.policy.policy import Policy
from warren.core.telemetry.counters import Counters
from warren.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound, PreconditionFailed, TooLarge
from warren.domain.records import AuditQuery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from warren.domain.records import AuditEntry
    from warren.domain.values import Entry, Image


class Shelf:
    """A sandbox and its files."""

    def __init__(self, estate: Estate, sandbox_id: str) -> None:
        self.estate = estate
        self.id = sandbox_id
        self.observer = Counters()
        self.files = Files(estate.sandboxes, estate.audit, self.observer)

    async def content(self, path: str, *where: int | None) -> bytes:
        async with self.files.read(ANN, self.id, path, *where) as content:  # type: ignore[arg-type]
            return b"".join([piece async for piece in content])

    async def audited(self) -> list[AuditEntry]:
        """Return what was noted of files, oldest first."""
        await self.estate.audit.flush()
        page = await self.estate.store.audit(AuditQuery())
        return [row.entry for row in reversed(page.items) if row.entry.action.startswith("file.")]


@pytest.fixture
def tell(python_image: Image, images_dir: str) -> Any:
    """Run a story with one sandbox."""
    # WHY: the path of a socket has 107 bytes, and pytest's folders are long.
    with tempfile.TemporaryDirectory(prefix="w") as folder:

        async def run(story: Callable[[Shelf], Awaitable[None]]) -> None:
            estate = Estate(folder, images_dir, Policy(image=python_image.name))
            with anyio.fail_after(60):
                async with estate.open():
                    try:
                        await story(Shelf(estate, (await estate.create()).id))
                    finally:
                        await estate.clean()

        yield lambda story: anyio.run(run, story)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def test_what_is_written_is_read_whole_and_in_parts(tell: Any) -> None:
    async def story(shelf: Shelf) -> None:
        entry = await shelf.files.write(ANN, shelf.id, "a/b.txt", pieces(b"hello ", b"world"), mode=0o600)
        assert (entry.path, entry.size, entry.mode, entry.type) == ("a/b.txt", 11, 0o600, "file")
        assert await shelf.content("a/b.txt") == b"hello world"
        assert await shelf.content("/workspace/a/b.txt", 6) == b"world"
        assert await shelf.content("a/b.txt", 1, 3) == b"ell"
        assert await shelf.content("a/b.txt", 50) == b""
        async with shelf.files.read(ANN, shelf.id, "a/b.txt", 1, 100) as content:
            assert (content.length, content.entry) == (10, await shelf.files.stat(ANN, shelf.id, "a/b.txt"))

    tell(story)


def test_a_large_file_comes_back_as_it_went(tell: Any) -> None:
    block = os.urandom(1 << 20)

    async def story(shelf: Shelf) -> None:
        await shelf.files.write(ANN, shelf.id, "big", pieces(*[block] * 20))
        assert await shelf.content("big") == block * 20
        for direction in ("in", "out"):
            moved = shelf.observer.registry.get_sample_value("warren_file_bytes_total", {"direction": direction})
            assert moved == 20 << 20

    tell(story)


def test_a_reader_who_leaves_early_leaves_nothing_behind(tell: Any) -> None:
    async def story(shelf: Shelf) -> None:
        await shelf.files.write(ANN, shelf.id, "big", bytes(30 << 20))
        async with shelf.files.read(ANN, shelf.id, "big") as content:
            async for _ in content:
                break
        assert 0 < content.sent < 30 << 20
        assert await shelf.content("big", (30 << 20) - 1) == b"\0"

    tell(story)


def test_a_source_that_fails_writes_nothing(tell: Any) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise TooLarge("enough")

    async def story(shelf: Shelf) -> None:
        with pytest.raises(TooLarge):
            await shelf.files.write(ANN, shelf.id, "a", broken())
        assert (await shelf.files.list(ANN, shelf.id)) == ((), True)

    tell(story)


def test_lists_moves_searches_and_deletes(tell: Any) -> None:
    async def story(shelf: Shelf) -> None:
        files, here = shelf.files, (ANN, shelf.id)
        await files.mkdir(*here, "src/deep")
        await files.write(*here, "src/a.py", b"import os\n")
        await files.write(*here, "src/.hidden", b"")
        listed, complete = await files.list(*here, "/workspace/src", hidden=False)
        assert ([entry.path for entry in listed], complete) == (["src/a.py", "src/deep"], True)
        listed, complete = await files.list(*here, recursive=True, limit=2)
        assert (len(listed), complete) == (2, False)
        found, complete = await files.search(*here, name="*.py", text="import")
        assert [(match.path, match.line, match.text) for match in found] == [("src/a.py", 1, "import os")]
        assert complete
        with pytest.raises(NotFound):
            await files.move(*here, "src/a.py", "new/b.py")
        assert (await files.move(*here, "src/a.py", "/workspace/new/b.py", parents=True)).path == "new/b.py"
        with pytest.raises(NotFound):
            await files.move(*here, "nothing", "other/b.py", parents=True)
        with pytest.raises(Conflict):
            await files.delete(*here, "src")
        assert await files.delete(*here, "src", recursive=True) == 3
        assert [entry.path for entry in (await files.list(*here, recursive=True))[0]] == ["new", "new/b.py"]

    tell(story)


def test_a_folder_goes_as_an_archive_and_comes_back(tell: Any) -> None:
    async def story(shelf: Shelf) -> None:
        files, here = shelf.files, (ANN, shelf.id)
        await files.write(*here, "in/a", b"1")
        async with files.pack(*here, "in", "tar") as archive:
            packed = b"".join([piece async for piece in archive])
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            assert tar.getnames() == ["a"]
        assert await files.unpack(*here, "out", pieces(packed[:700], packed[700:])) == 1
        assert await shelf.content("out/a") == b"1"
        with pytest.raises(NotFound):
            async with files.pack(*here, "nothing") as archive:
                [piece async for piece in archive]

    tell(story)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a\0b", "/workspace/../etc"])
def test_a_path_that_leads_out_is_refused(tell: Any, path: str) -> None:
    async def story(shelf: Shelf) -> None:
        for attempt in (shelf.content(path), shelf.files.write(ANN, shelf.id, path, b"x")):
            with pytest.raises(InvalidRequest):
                await attempt

    tell(story)


def test_a_folder_is_no_file(tell: Any) -> None:
    async def story(shelf: Shelf) -> None:
        await shelf.files.mkdir(ANN, shelf.id, "folder")
        for attempt in (shelf.content("folder"), shelf.files.write(ANN, shelf.id, "folder", b"x")):
            with pytest.raises(Conflict):
                await attempt

    tell(story)


def test_files_are_their_owners(tell: Any) -> None:
    async def story(shelf: Shelf) -> None:
        await shelf.files.write(ANN, shelf.id, "a", b"secret")
        with pytest.raises(NotFound):
            await shelf.files.stat(BOB, shelf.id, "a")
        with pytest.raises(Forbidden):
            await shelf.files.write(READER, shelf.id, "a", b"x")
        assert (await shelf.files.stat(READER, shelf.id, "a")).size == 6

    tell(story)


def test_a_stopped_sandbox_is_resumed_for_its_files(tell: Any) -> None:
    async def story(shelf: Shelf) -> None:
        await shelf.files.write(ANN, shelf.id, "a", b"kept")
        await shelf.estate.sandboxes.stop(ANN, shelf.id)
        assert await shelf.content("a") == b"kept"

    tell(story)


def test_everything_is_written_down_also_what_failed(tell: Any) -> None:
    async def story(shelf: Shelf) -> None:
        await shelf.files.write(ANN, shelf.id, "caf\udce9", b"12345")
        await shelf.content("caf\udce9")
        with contextlib.suppress(NotFound):
            await shelf.content("nothing")
        noted = await shelf.audited()
        assert [(entry.action, entry.outcome) for entry in noted] == [
            ("file.write", "ok"),
            ("file.read", "ok"),
            ("file.read", "not_found"),
        ]
        assert noted[0].details == {"path": "caf\\udce9", "create": "replace", "bytes": 5}
        assert (noted[1].details["bytes"], noted[1].sandbox_id, noted[1].subject) == (5, shelf.id, "ann")

    tell(story)


def test_names_of_any_bytes_are_names(tell: Any) -> None:
    async def story(shelf: Shelf) -> None:
        for name in ("ünï cödé", "\udcff\udc80", "new\nline", "100%"):
            await shelf.files.write(ANN, shelf.id, name, name.encode("utf-8", "surrogateescape"))
            assert os.fsdecode(await shelf.content(name)) == name
        assert len((await shelf.files.list(ANN, shelf.id))[0]) == 4

    tell(story)


def test_of_two_who_replace_the_same_state_one_is_refused_however_they_meet(tell: Any) -> None:
    async def story(shelf: Shelf) -> None:
        def only(state: Entry) -> Callable[[Entry | None], None]:
            def check(entry: Entry | None) -> None:
                if entry != state:
                    raise PreconditionFailed("it is another")

            return check

        async def slowly(state: Entry) -> AsyncIterator[bytes]:
            yield b"slow"
            await shelf.files.write(ANN, shelf.id, "./a", b"quick", check=only(state))

        state = await shelf.files.write(ANN, shelf.id, "a", b"first")
        with pytest.raises(PreconditionFailed):
            await shelf.files.write(ANN, shelf.id, "a", slowly(state), check=only(state))
        assert await shelf.content("a") == b"quick"

        state, refused = await shelf.files.stat(ANN, shelf.id, "a"), []

        async def change(what: Callable[..., Awaitable[Any]], *content: bytes) -> None:
            try:
                await what(ANN, shelf.id, "a", *content, check=only(state))
            except PreconditionFailed:
                refused.append(what)

        async with anyio.create_task_group() as tasks:
            for content in (b"one", b"two"):
                tasks.start_soon(change, shelf.files.write, content)
            tasks.start_soon(change, shelf.files.delete)
        assert len(refused) == 2
        with pytest.raises(PreconditionFailed):
            await shelf.files.write(ANN, shelf.id, "never", b"x", check=only(state))
        with pytest.raises(NotFound):
            await shelf.content("never")

    tell(story)
