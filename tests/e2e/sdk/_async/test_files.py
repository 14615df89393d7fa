from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import pytest

import warren
from warren import AsyncClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.sdk.breaking import BreakingProxy
    from e2e.serving import RunningService
    from warren import AsyncSandbox
    from warren.sdk.content import Uploadable

pytestmark = pytest.mark.anyio

MIB = 1 << 20


class Meter:
    """Notes what a progress callback is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int | None]] = []

    def __call__(self, done: int, total: int | None) -> None:
        self.told.append((done, total))


async def test_a_file_is_written_and_read(sandbox: AsyncSandbox) -> None:
    tag = await sandbox.files.write("new/ä b%.txt", "text", mode="600")

    assert await sandbox.files.read("new/ä b%.txt") == b"text"
    assert await sandbox.files.read_text("/workspace/new/ä b%.txt") == "text"
    assert await sandbox.files.read("new/../new/./ä b%.txt", start=1, length=2) == b"ex"
    assert await sandbox.files.read("new/ä b%.txt", start=2) == b"xt"
    assert await sandbox.files.read("new/ä b%.txt", length=0) == b""
    found = await sandbox.files.stat("new/ä b%.txt")
    assert (found.size, found.content_type, found.etag) == (4, "text/plain", tag)
    assert (await sandbox.files.list("new")).entries[0].mode == "600"


@pytest.mark.parametrize("kind", ["bytes", "path", "open file", "pipe", "pieces"])
async def test_content_comes_from_anywhere(sandbox: AsyncSandbox, tmp_path: Path, kind: str) -> None:
    data = os.urandom(5 * MIB // 2)
    (tmp_path / "data").write_bytes(data)
    meter = Meter()
    with open(tmp_path / "data", "rb") as file:
        sources: dict[str, Uploadable] = {
            "bytes": data,
            "path": tmp_path / "data",
            "open file": file,
            "pipe": Unseekable(data),
            "pieces": pieces(data),
        }
        await sandbox.files.write("data", sources[kind], progress=meter)

    assert await sandbox.files.read("data") == data
    total = len(data) if kind in {"bytes", "path", "open file"} else None
    assert meter.told[-1] == (len(data), total)
    assert len(meter.told) >= 3
    assert meter.told == sorted(meter.told)


class Unseekable(io.RawIOBase):
    """A file that can only be read once, as a pipe."""

    def __init__(self, data: bytes) -> None:
        self._inner = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._inner.read(size)


def pieces(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), MIB):
        yield data[start : start + MIB]


async def test_a_text_file_is_refused_with_what_to_do(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    with open(tmp_path / "text", encoding="utf-8") as file, pytest.raises(TypeError, match="binary mode"):
        await sandbox.files.write("text", file)  # type: ignore[arg-type]  # that is the point


async def test_files_are_copied_with_their_permissions(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    source, target, meter = tmp_path / "run.sh", tmp_path / "back", Meter()
    source.write_text("#!/bin/sh\necho ran")
    source.chmod(0o755)

    assert await sandbox.files.upload(source) == "run.sh"
    assert await sandbox.files.upload(str(source), "deep/er.sh", mode="700") == "deep/er.sh"

    assert (await sandbox.exec("./run.sh; deep/er.sh")).stdout == "ran\nran\n"
    assert await sandbox.files.download("run.sh", target, progress=meter) == 18
    assert target.read_text() == source.read_text()
    assert meter.told == [(18, 18)]
    with pytest.raises(IsADirectoryError, match="upload_folder"):
        await sandbox.files.upload(tmp_path)


async def test_a_download_that_fails_leaves_the_old_file(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("old")
    with pytest.raises(warren.NotFound):
        await sandbox.files.download("nothing", tmp_path / "kept")

    assert [each.name for each in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "old"


async def test_large_files_come_in_pieces(sandbox: AsyncSandbox) -> None:
    await sandbox.exec("head -c 3000000 /dev/zero > zeros")
    into, sizes = io.BytesIO(), []

    async with sandbox.files.open("zeros") as content:
        async for piece in content:
            sizes.append(len(piece))  # noqa: PERF401 - the same without await

    assert sum(sizes) == 3_000_000
    assert max(sizes) <= MIB
    assert await sandbox.files.download("zeros", into) == len(into.getvalue()) == 3_000_000


async def test_a_download_that_breaks_is_taken_up_again(
    service: RunningService, sandbox: AsyncSandbox, proxy: BreakingProxy
) -> None:
    size = 64 * MIB
    await sandbox.run(f"import os; open('large', 'wb').write(os.urandom(1 << 20) * {size // MIB})")
    into, told = io.BytesIO(), []

    def cut_once(done: int, _total: int | None) -> None:
        told.append(done)
        if len(told) in {2, 5}:
            proxy.cut()

    async with AsyncClient(proxy.url, service.key) as client:
        done = await client.sandboxes.at(sandbox.id).files.download("large", into, progress=cut_once)

    assert (done, told[-1], told) == (size, size, sorted(told))
    assert proxy.connections >= 2
    assert into.getvalue() == await sandbox.files.read("large")


async def test_folders_are_copied_both_ways(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    (tmp_path / "here/inner").mkdir(parents=True)
    (tmp_path / "here/inner/a").write_text("a")
    (tmp_path / "here/link").symlink_to("inner/a")

    assert await sandbox.files.upload_folder(tmp_path / "here", "there") == 3
    await sandbox.exec("echo b > there/b")
    assert await sandbox.files.download_folder("there", tmp_path / "back") == 4

    assert {path.name for path in (tmp_path / "back").rglob("*")} == {"inner", "a", "link", "b"}
    assert (tmp_path / "back/link").read_text() == "a"
    with pytest.raises(NotADirectoryError):
        await sandbox.files.upload_folder(tmp_path / "here/inner/a")


async def test_archives_are_made_and_unpacked(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    await sandbox.files.write_many({"a.txt": "a", "b/c.txt": b"c", 'd"q.txt': "d"}, path="src")
    for kind in ("tar", "tar.gz", "zip"):
        meter = Meter()
        size = await sandbox.files.archive("src", tmp_path / kind, format=kind, progress=meter)
        assert meter.told[-1][0] == size == os.path.getsize(tmp_path / kind)

        await sandbox.files.unpack(tmp_path / kind, f"out-{kind}", format=kind)

        found = await sandbox.files.list(f"out-{kind}", recursive=True)
        assert {each.name for each in found} == {"a.txt", "b", "c.txt", 'd"q.txt'}


async def test_conditions_keep_others_work(sandbox: AsyncSandbox) -> None:
    tag = await sandbox.files.write("shared", "one")
    await sandbox.files.write("shared", "two", if_match=tag)

    with pytest.raises(warren.PreconditionFailed):
        await sandbox.files.write("shared", "three", if_match=tag)
    with pytest.raises(warren.PreconditionFailed):
        await sandbox.files.write("shared", "three", overwrite=False)
    await sandbox.files.write("once", "x", overwrite=False)
    await sandbox.files.delete("once")

    assert await sandbox.files.read_text("shared") == "two"


async def test_names_are_made_moved_found_and_deleted(fresh: AsyncSandbox) -> None:
    files = fresh.files
    assert (await files.mkdir("a/b")).type == "directory"
    await files.write("a/b/one.py", "import os\nimport sys\n")
    assert (await files.move("a/b/one.py", "a/two.py")).path == "a/two.py"

    found = await files.search(name="*.py", text="sys")
    assert [(match.path, match.line, match.text) for match in found] == [("a/two.py", 2, "import sys")]
    assert len(await files.search("a", regex="^import")) == 2
    assert (await files.exists("a"), await files.exists("a/two.py"), await files.exists("no")) == (True, True, False)

    listed = await files.list(recursive=True, limit=1)
    assert (len(listed), listed.is_complete) == (1, False)
    await files.delete("a/two.py")
    await files.delete("a", recursive=True)
    assert [each.name for each in await files.list(hidden=False)] == []


async def test_names_that_are_no_text_are_reached(sandbox: AsyncSandbox) -> None:
    await sandbox.run("open(b'odd-\\xff', 'w').write('odd')")
    (entry,) = [each for each in await sandbox.files.list() if each.name.startswith("odd")]

    assert entry.encoded_path == "odd-%FF"
    assert await sandbox.files.read(os.fsdecode(b"odd-\xff")) == b"odd"


async def test_a_large_upload_that_is_refused_says_why(client: AsyncClient) -> None:
    with pytest.raises(warren.NotFound):
        await client.sandboxes.at("sbx_aaaaaaaaaaaaaaaa").files.write("large", b"x" * (5 * MIB))


async def test_what_cannot_be_done_says_why(sandbox: AsyncSandbox) -> None:
    with pytest.raises(warren.NotFound, match="missing"):
        await sandbox.files.read("missing")
    with pytest.raises(warren.Error):
        await sandbox.files.read("../../etc/passwd")
    await sandbox.files.write("short", "abc")
    with pytest.raises(warren.OutOfRange):
        await sandbox.files.read("short", start=10)
    with pytest.raises(warren.Conflict, match="folder"):
        await sandbox.files.download(".", io.BytesIO())
