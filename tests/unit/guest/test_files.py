"""The file operations, through a real agent and a real link."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from warren.domain.errors import Conflict, InvalidRequest, NotFound, TooLarge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from unit.guest.agent_workspace import AgentWorkspace
    from warren.core.agent.client import AgentClient


def test_a_file_comes_back_as_it_was_written(here: AgentWorkspace) -> None:
    content = os.urandom(3 << 20)

    async def story(link: AgentClient) -> bytes:
        entry = await link.write("data/new/file.bin", content, mode=0o640)
        assert (entry.path, entry.type, entry.size, entry.mode) == ("data/new/file.bin", "file", len(content), 0o640)
        return await link.read_bytes("data/new/file.bin", 1 << 30)

    assert here.do(story) == content
    assert here.read("data/new/file.bin") == content
    assert here.tree() == ["data", "data/new", "data/new/file.bin"]


def test_a_part_of_a_file_is_read(here: AgentWorkspace) -> None:
    here.make({"f": b"0123456789"})

    async def story(link: AgentClient) -> list[bytes]:
        return [
            b"".join([piece async for piece in link.read("f", offset, length)])
            for offset, length in ((2, 3), (8, 100), (50, 5), (0, 0), (4, None))
        ]

    assert here.do(story) == [b"234", b"89", b"", b"", b"456789"]


def test_an_empty_file_and_an_absolute_path_are_fine(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> bytes:
        await link.write(here.path("empty"), b"")
        return await link.read_bytes(here.path("empty"), 10)

    assert here.do(story) == b""


def test_a_file_over_the_callers_limit_is_too_large(here: AgentWorkspace) -> None:
    here.make({"f": b"x" * 1000})

    async def story(link: AgentClient) -> None:
        with pytest.raises(TooLarge):
            await link.read_bytes("f", 999)
        assert len(await link.read_bytes("f", 1000)) == 1000

    here.do(story)


def test_writing_replaces_appends_or_insists_on_being_first(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        await link.write("f", b"one")
        await link.write("f", b"two")
        await link.write("f", b"+three", create="append")
        with pytest.raises(Conflict, match="exists already"):
            await link.write("f", b"four", create="exclusive")
        await link.write("g", b"five", create="exclusive")

    here.do(story)

    assert here.read("f") == b"two+three"
    assert here.tree() == ["f", "g"]


def test_no_two_states_of_a_file_have_the_same_time_however_soon_one_follows_the_other(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> set[int]:
        times = set()
        for number in range(100):
            await link.write("f", b"%03d" % number)
            times.add((await link.stat("f")).mtime_ns)
        return times

    assert len(here.do(story)) == 100


def test_an_upload_that_breaks_off_leaves_the_old_file_and_nothing_else(here: AgentWorkspace) -> None:
    here.make({"f": b"old"})

    async def half() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        raise OSError("the client went away")

    async def story(link: AgentClient) -> None:
        with pytest.raises(OSError, match="went away"):
            await link.write("f", half())
        await link.stat("f")

    here.do(story)

    assert here.read("f") == b"old"
    assert here.tree() == ["f"]


def test_a_temporary_file_of_an_upload_is_never_a_change(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        await link.changes()
        seen = anyio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"x" * 10
            assert await link.list() == ((), True)
            assert await link.changes() == ((), True)
            seen.set()
            yield b"y"

        await link.write("f", slow())
        assert seen.is_set()
        assert await link.changes() == ((), True)

    here.do(story)


def test_writing_through_a_link_inside_changes_the_target(here: AgentWorkspace) -> None:
    here.make({"real/f": b"old"})
    os.symlink("real/f", here.path("link"))

    async def story(link: AgentClient) -> None:
        await link.write("link", b"new")

    here.do(story)

    assert here.read("real/f") == b"new"
    assert os.path.islink(here.path("link"))


@pytest.mark.parametrize("target", ["../outside", "/tmp/outside-of-warren"])
def test_no_operation_follows_a_link_that_leads_out(here: AgentWorkspace, target: str) -> None:
    os.symlink(target, here.path("link"))
    os.symlink("..", here.path("up"))
    outside = os.path.dirname(here.agent.workspace)
    before = sorted(os.listdir(outside))

    async def story(link: AgentClient) -> None:
        with pytest.raises((InvalidRequest, NotFound)):
            await link.read_bytes("link", 100)
        with pytest.raises(InvalidRequest):
            await link.write("link", b"gotcha")
        with pytest.raises(InvalidRequest):
            await link.write("up/planted", b"gotcha")
        with pytest.raises(InvalidRequest):
            await link.list("up")
        with pytest.raises(InvalidRequest):
            await link.mkdir("up/planted")
        with pytest.raises(InvalidRequest):
            await link.delete("up/socket")
        with pytest.raises(InvalidRequest):
            await link.unpack("up/planted", b"", "tar")

    here.do(story)

    assert sorted(os.listdir(outside)) == before
    assert not os.path.exists("/tmp/outside-of-warren")


def test_only_regular_files_are_read_or_written(here: AgentWorkspace) -> None:
    os.mkfifo(here.path("fifo"))
    os.mkdir(here.path("folder"))

    async def story(link: AgentClient) -> None:
        with pytest.raises(InvalidRequest, match="not a regular file"):
            await link.read_bytes("fifo", 10)
        with pytest.raises(InvalidRequest, match="not a regular file"):
            await link.write("fifo", b"x", create="append")
        with pytest.raises(Conflict, match="is a folder"):
            await link.read_bytes("folder", 10)
        with pytest.raises(Conflict):
            await link.write("folder", b"x")
        assert (await link.stat("fifo")).type == "other"

    here.do(story)

    assert here.tree() == ["fifo", "folder"]


def test_stat_tells_a_link_from_its_target(here: AgentWorkspace) -> None:
    here.make({"f": b"12345"})
    os.symlink("f", here.path("link"))
    os.symlink("nothing", here.path("dangling"))

    async def story(link: AgentClient) -> None:
        assert (await link.stat("link")).size == 5
        itself = await link.stat("link", follow=False)
        assert (itself.type, itself.target) == ("link", "f")
        with pytest.raises(NotFound, match="dangling"):
            await link.stat("dangling")
        assert (await link.stat(".")).type == "directory"

    here.do(story)


def test_listing_is_sorted_bounded_and_says_so(here: AgentWorkspace) -> None:
    here.make({f"d/{number:04}": b"" for number in range(600)} | {".hidden/x": b"", "a.txt": b""})

    async def story(link: AgentClient) -> None:
        entries, complete = await link.list()
        assert [entry.path for entry in entries] == [".hidden", "a.txt", "d"]
        assert complete
        entries, complete = await link.list(recursive=True, hidden=False)
        assert len(entries) == 602
        assert [entry.path for entry in entries] == sorted(entry.path for entry in entries)
        entries, complete = await link.list("d", limit=10)
        assert [entry.path for entry in entries] == [f"d/{number:04}" for number in range(10)]
        assert not complete

    here.do(story)


def test_listing_without_hidden_names_does_not_look_into_packages_of_npm(here: AgentWorkspace) -> None:
    here.make({"node_modules/x/index.js": b"", "app/node_modules/y.js": b"", "app/main.js": b""})

    async def story(link: AgentClient) -> None:
        entries, complete = await link.list(recursive=True, hidden=False)
        assert [entry.path for entry in entries] == ["app", "app/main.js", "app/node_modules", "node_modules"]
        assert complete
        inside, _ = await link.list("node_modules", recursive=True, hidden=False)
        assert [entry.path for entry in inside] == ["node_modules/x", "node_modules/x/index.js"]

    here.do(story)


def test_a_name_of_any_bytes_survives_the_trip(here: AgentWorkspace) -> None:
    name = b"caf\xe9-\xff"
    with open(os.path.join(here.agent.workspace.encode(), name), "wb") as file:
        file.write(b"odd")

    async def story(link: AgentClient) -> bytes:
        entries, _ = await link.list()
        return await link.read_bytes(entries[0].path, 10)

    assert here.do(story) == b"odd"


def test_moving_does_not_overwrite_by_default(here: AgentWorkspace) -> None:
    here.make({"a": b"A", "b": b"B", "d/x": b"X"})

    async def story(link: AgentClient) -> None:
        with pytest.raises(Conflict, match="'b' exists"):
            await link.move("a", "b")
        assert (await link.move("a", "b", overwrite=True)).path == "b"
        await link.move("d", "e")
        with pytest.raises(NotFound):
            await link.move("nothing", "z")
        with pytest.raises(NotFound, match="missing"):
            await link.move("b", "missing/b")
        with pytest.raises(InvalidRequest):
            await link.move("e", "e/inside")

    here.do(story)

    assert here.tree() == ["b", "e", "e/x"]
    assert here.read("b") == b"A"


def test_folders_are_made_one_by_one_or_all_at_once(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        with pytest.raises(NotFound):
            await link.mkdir("a/b", parents=False)
        assert (await link.mkdir("a/b")).type == "directory"
        await link.mkdir("a/b")
        with pytest.raises(Conflict):
            await link.mkdir("a/b", parents=False)
        await link.write("f", b"")
        with pytest.raises(Conflict):
            await link.mkdir("f/g")

    here.do(story)


def test_deleting_a_folder_needs_the_word_recursive(here: AgentWorkspace) -> None:
    here.make({f"d/{number}/f": b"" for number in range(30)} | {"keep": b""})
    os.symlink("../keep", here.path("d/link"))

    async def story(link: AgentClient) -> None:
        with pytest.raises(Conflict, match="not empty"):
            await link.delete("d")
        assert await link.delete("d", recursive=True) == 62
        with pytest.raises(NotFound):
            await link.delete("d")
        with pytest.raises(InvalidRequest):
            await link.delete(".", recursive=True)

    here.do(story)

    assert here.tree() == ["keep"]


def test_a_tree_deeper_than_a_path_can_say_is_deleted(here: AgentWorkspace) -> None:
    os.mkdir(here.path("deep"))
    at = os.open(here.path("deep"), os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("dd", dir_fd=at)
        below = os.open("dd", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)

    async def story(link: AgentClient) -> int:
        _, complete = await link.list(recursive=True)
        assert not complete
        return await link.delete("deep", recursive=True)

    assert here.do(story) == 3001
    assert here.tree() == []


def test_what_a_gateway_did_is_not_a_change_and_what_others_did_is(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        await link.changes()
        await link.write("mine", b"1")
        await link.write("d/mine", b"1")
        await link.move("mine", "moved")
        await link.delete("d", recursive=True)
        assert await link.changes() == ((), True)
        here.make({"theirs": b"12"})
        changed, complete = await link.changes()
        assert [(one.path, one.action, one.size) for one in changed] == [("theirs", "created", 2)]
        assert complete

    here.do(story)


def test_nonsense_parameters_are_refused_and_named(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        for op, parameters, word in (
            ("fs.read", {"path": 5}, "path"),
            ("fs.read", {"path": "f", "offset": -1}, "offset"),
            ("fs.list", {"limit": 0}, "limit"),
            ("fs.list", {"recursive": "yes"}, "recursive"),
            ("fs.write", {"path": "f", "create": "maybe"}, "create"),
            ("fs.pack", {"format": "rar"}, "format"),
            ("fs.move", {"path": "f"}, "to"),
            ("fs.delete", {}, "workspace itself"),
        ):
            with pytest.raises(InvalidRequest, match=word):
                await link.call(op, {"path": "."} | parameters if "path" not in parameters else parameters)

    here.make({"f": b""})
    here.do(story)


def test_a_setuid_mode_is_not_kept(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        await link.write("f", b"", mode=0o4755)

    here.do(story)

    assert stat.S_IMODE(os.stat(here.path("f")).st_mode) == 0o755


def test_a_reader_that_stops_reading_does_not_stall_the_others(here: AgentWorkspace) -> None:
    here.make({"big": bytes(20 << 20), "small": b"quick"})

    async def story(link: AgentClient) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(20):
                stalled = await stack.enter_async_context(contextlib.aclosing(link.read("big")))
                await anext(stalled)
            assert await link.read_bytes("small", 100) == b"quick"
        assert await link.read_bytes("small", 100) == b"quick"

    here.do(story)


def test_a_cancelled_pack_leaves_no_process_behind(here: AgentWorkspace) -> None:
    here.make({f"f{number}": os.urandom(1 << 20) for number in range(16)})

    async def story(link: AgentClient) -> None:
        async with contextlib.aclosing(link.pack(".", "tar.gz")) as pieces:
            await anext(pieces)
        await here.until(lambda: not workers(here))

    here.do(story)


def workers(here: AgentWorkspace) -> list[str]:
    """List the agent's children that are neither its forkserver nor the child that the forkserver has ready."""
    pid = here.agent.process.pid
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()[2:]


SWAPPER = """
import itertools, os
for _ in itertools.count():
    try:
        os.rename("real", "aside")
        os.symlink("../canary", "real")
        os.unlink("real")
        os.rename("aside", "real")
    except OSError:
        pass
"""


@contextlib.contextmanager
def swapping(here: AgentWorkspace) -> Iterator[str]:
    """Keep a program running that swaps a folder for a link to the outside and back; yield that outside."""
    outside = os.path.join(os.path.dirname(here.agent.workspace), "canary")
    os.mkdir(outside)
    with open(os.path.join(outside, "secret"), "w") as file:
        file.write("TOP SECRET")
    process = subprocess.Popen([sys.executable, "-c", SWAPPER], cwd=here.agent.workspace)
    try:
        yield outside
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(outside)


def test_links_swapped_in_while_we_work_never_lead_out(here: AgentWorkspace) -> None:
    here.make({"real/f": b"inside", "real/sub/g": b"inside"})

    async def story(link: AgentClient) -> None:
        for number in range(150):
            for call in (
                link.write(f"real/n{number % 5}", b"x"),
                link.write(f"real/deep{number % 3}/n", b"x"),
                link.delete("real/n1"),
                link.move("real/n2", "real/n3", overwrite=True),
                link.mkdir(f"real/m{number % 3}"),
                link.write("real/secret", b"x", create="append"),
            ):
                with contextlib.suppress(InvalidRequest, NotFound, Conflict):
                    await call
            with contextlib.suppress(InvalidRequest, NotFound, Conflict):
                assert b"SECRET" not in await link.read_bytes("real/secret", 10_000)

    with swapping(here) as outside:
        here.do(story)
        left = os.listdir(outside)
        with open(os.path.join(outside, "secret")) as file:
            content = file.read()

    assert left == ["secret"]
    assert content == "TOP SECRET"


def test_workers_are_not_led_out_either(here: AgentWorkspace) -> None:
    here.make({f"real/sub{number}/g": b"inside" for number in range(20)})

    async def story(link: AgentClient) -> None:
        packed = b""
        for _ in range(8):
            with contextlib.suppress(InvalidRequest, NotFound, Conflict):
                entries, _complete = await link.list(recursive=True)
                assert "real/secret" not in [entry.path for entry in entries]
            with contextlib.suppress(InvalidRequest, NotFound, Conflict):
                assert await link.search(text="TOP SECRET") in [((), True), ((), False)]
            with contextlib.suppress(InvalidRequest, NotFound, Conflict):
                packed = b"".join([piece async for piece in link.pack(".", "tar")])
                assert b"TOP SECRET" not in packed
            with contextlib.suppress(InvalidRequest, NotFound, Conflict):
                await link.unpack("real", packed, "tar")
            with contextlib.suppress(InvalidRequest, NotFound, Conflict):
                await link.delete("real", recursive=True)

    with swapping(here) as outside:
        here.do(story)
        left = os.listdir(outside)

    assert left == ["secret"]
