"""The text editor, through a real agent and a real link."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from warren.core.agent.editor import Replaced, Viewed
from warren.domain.errors import Conflict, InvalidRequest, NotFound, TooLarge
from warren.guest.files.documents import MAX_EDITED, UNDO_BYTES, UNDO_STEPS, Undo

if TYPE_CHECKING:
    from unit.guest.agent_workspace import AgentWorkspace
    from warren.core.agent.client import AgentClient


def test_a_file_is_shown_as_it_is_and_its_lines_are_counted(here: AgentWorkspace) -> None:
    here.make({"f": b"one\r\ntwo\n\xff three", "empty": b""})

    async def story(link: AgentClient) -> list[Viewed]:
        return [await link.view_text("f"), await link.view_text("empty")]

    assert here.do(story) == [Viewed(b"one\r\ntwo\n\xff three", False, 3, 1), Viewed(b"", False, 0, 1)]


@pytest.mark.parametrize(
    ("first", "last", "shown"),
    [
        (1, 2, b"1\n2"),
        (2, None, b"2\n3\n4"),
        (None, 1, b"1"),
        (3, 99, b"3\n4"),
        (9, 10, b""),
        (3, 1, b""),
    ],
)
def test_some_lines_are_shown_without_the_end_of_the_last(
    here: AgentWorkspace, first: int | None, last: int | None, shown: bytes
) -> None:
    here.make({"f": b"1\n2\r\n3\n4\n"})

    async def story(link: AgentClient) -> Viewed:
        return await link.view_text("f", first, last)

    viewed = here.do(story)
    assert (viewed.content, viewed.lines, viewed.first) == (shown, 4, first or 1)


def test_of_a_large_file_lines_are_shown_and_all_of_it_is_refused(here: AgentWorkspace) -> None:
    here.make({"log": b"".join(b"line %d\n" % number for number in range(1, 600_001))})

    async def story(link: AgentClient) -> Viewed:
        with pytest.raises(TooLarge, match="see a part of it"):
            await link.view_text("log")
        with pytest.raises(TooLarge, match="fewer lines"):
            await link.view_text("log", 1)
        return await link.view_text("log", 599_999)

    assert here.do(story) == Viewed(b"line 599999\nline 600000", False, 600_000, 599_999)


def test_a_folder_is_shown_two_levels_deep(here: AgentWorkspace) -> None:
    here.make({"d/b/deep/x": b"", "d/b/f": b"", "d/a": b"", "d/.h": b"", "other": b""})
    os.symlink("/etc", here.path("d/out"))

    async def story(link: AgentClient) -> list[Viewed]:
        return [await link.view_text("d"), await link.view_text(".")]

    inner, outer = here.do(story)
    assert inner == Viewed(b".h\na\nb\nb/deep\nb/f\nout", True, 6, 1)
    assert outer.content == b"d\nd/.h\nd/a\nd/b\nd/out\nother"


def test_a_file_is_made_with_its_folders_and_never_overwritten_unasked(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> list[tuple[bool, bool]]:
        return [
            await link.create_text("new/deep/f", b"first"),
            await link.create_text("new/deep/f", b"second"),
            await link.create_text("new/deep", b"second"),
            await link.create_text(".", b"second"),
        ]

    assert here.do(story) == [(True, False), (False, False), (False, False), (False, False)]
    assert here.read("new/deep/f") == b"first"
    assert here.tree() == ["new", "new/deep", "new/deep/f"]


def test_an_overwritten_file_comes_back_by_undo(here: AgentWorkspace) -> None:
    here.make({"f": b"before"})

    async def story(link: AgentClient) -> tuple[bool, bool]:
        made = await link.create_text("f", b"after", overwrite=True)
        assert here.read("f") == b"after"
        assert await link.undo_text("f")
        return made

    assert here.do(story) == (True, True)
    assert here.read("f") == b"before"


def test_a_text_that_occurs_once_is_replaced_and_the_lines_around_it_are_returned(here: AgentWorkspace) -> None:
    here.make({"f": b"a\r\nsay old now\n\xff\n"})
    os.chmod(here.path("f"), 0o750)

    async def story(link: AgentClient) -> Replaced:
        return await link.replace_text("f", b"old now\n", b"new\nand ")

    assert here.do(story) == Replaced(1, 2, b"say old now\n\xff", b"say new\nand \xff")
    assert here.read("f") == b"a\r\nsay new\nand \xff\n"
    assert os.stat(here.path("f")).st_mode & 0o777 == 0o750
    assert here.tree() == ["f"]


@pytest.mark.parametrize(("content", "matches"), [(b"none", 0), (b"xx", 2)])
def test_a_text_that_is_not_there_once_is_left_alone(here: AgentWorkspace, content: bytes, matches: int) -> None:
    here.make({"left": content})

    async def story(link: AgentClient) -> tuple[Replaced, bool]:
        return await link.replace_text("left", b"x", b"y"), await link.undo_text("left")

    assert here.do(story) == (Replaced(matches), False)
    assert here.read("left") == content


@pytest.mark.parametrize(
    ("line", "text", "after"),
    [
        (0, b"new", b"new\n1\r\n2"),
        (1, b"new\n", b"1\r\nnew\n2"),
        (2, b"new", b"1\r\n2\nnew\n"),
    ],
)
def test_text_is_inserted_after_a_line(here: AgentWorkspace, line: int, text: bytes, after: bytes) -> None:
    here.make({"f": b"1\r\n2"})

    async def story(link: AgentClient) -> tuple[bool, int]:
        return await link.insert_text("f", line, text)

    assert here.do(story) == (True, 2)
    assert here.read("f") == after


@pytest.mark.parametrize("line", [-1, 3])
def test_nothing_is_inserted_after_a_line_that_is_not_there(here: AgentWorkspace, line: int) -> None:
    here.make({"f": b"1\n2\n"})

    async def story(link: AgentClient) -> tuple[bool, int]:
        return await link.insert_text("f", line, b"x")

    assert here.do(story) == (False, 2)
    assert here.read("f") == b"1\n2\n"


def test_edits_are_undone_the_newest_first_and_by_any_name_of_the_file(here: AgentWorkspace) -> None:
    here.make({"d/f": b"0\n", "g": b"g\n"})
    os.symlink("d/f", here.path("link"))

    async def story(link: AgentClient) -> list[bool]:
        await link.insert_text("d/f", 1, b"1")
        await link.insert_text("g", 0, b"g")
        await link.replace_text("link", b"1", b"one")
        os.unlink(here.path("d/f"))
        undone = [await link.undo_text("link")]
        assert here.read("d/f") == b"0\n1\n"
        return [*undone, await link.undo_text("d/f"), await link.undo_text("d/f")]

    assert here.do(story) == [True, True, False]
    assert here.read("d/f") == b"0\n"
    assert here.read("g") == b"g\ng\n"
    assert os.path.islink(here.path("link"))


def test_what_leads_out_of_the_workspace_is_refused(here: AgentWorkspace) -> None:
    os.symlink("/etc/hostname", here.path("out"))

    async def story(link: AgentClient) -> None:
        for path in ("../x", "/etc/hostname", "out", "a/../../x"):
            for refused in (
                link.view_text(path),
                link.create_text(path, b""),
                link.replace_text(path, b"a", b"b"),
                link.insert_text(path, 0, b"x"),
                link.undo_text(path),
            ):
                with pytest.raises(InvalidRequest):
                    await refused

    here.do(story)


def test_what_is_no_file_is_refused_and_nothing_waits_for_it(here: AgentWorkspace) -> None:
    here.make({"d/f": b""})
    os.mkfifo(here.path("pipe"))

    async def story(link: AgentClient) -> None:
        with pytest.raises(NotFound):
            await link.replace_text("nothing", b"a", b"b")
        with pytest.raises(Conflict, match="folder"):
            await link.replace_text("d", b"a", b"b")
        with pytest.raises(InvalidRequest):
            await link.view_text("pipe")
        with pytest.raises(Conflict):
            await link.create_text("d/f/g", b"")

    here.do(story)


def test_a_file_that_is_too_large_to_edit_is_left_alone(here: AgentWorkspace) -> None:
    here.make({"f": b"x" * MAX_EDITED + b"y"})

    async def story(link: AgentClient) -> None:
        with pytest.raises(TooLarge):
            await link.replace_text("f", b"y", b"z")
        with pytest.raises(TooLarge):
            await link.create_text("g", b"x" * (MAX_EDITED + 1))

    here.do(story)
    assert here.tree() == ["f"]


def test_what_was_is_kept_only_up_to_a_bound_and_the_oldest_goes() -> None:
    undo = Undo()
    for number in range(UNDO_STEPS + 5):
        undo.push((0, 0, str(number)), b"x")
    assert undo.pop((0, 0, "4")) is None
    assert undo.pop((0, 0, "5")) == b"x"

    undo.push((0, 0, "large"), b"x" * (UNDO_BYTES - 1))
    undo.push((0, 0, "last"), b"yy")
    assert undo.pop((0, 0, "large")) is None
    assert undo.pop((0, 0, "last")) == b"yy"
