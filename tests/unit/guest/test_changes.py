"""The change scan: its reports, its limits and its cost."""

from __future__ import annotations

import itertools
import os
import select
import time
from typing import TYPE_CHECKING

import pytest

from warren.guest.files import changes as module
from warren.guest.files.changes import Changes

if TYPE_CHECKING:
    from pathlib import Path


def said(changes: Changes) -> list[tuple[str, str]]:
    found, complete = changes.scan()
    assert complete
    return [(one["path"], one["action"]) for one in found]


def test_created_modified_and_deleted_files_are_distinguished(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("1")
    (tmp_path / "going").write_text("1")
    changes = Changes(str(tmp_path))

    (tmp_path / "new").write_text("12345")
    (tmp_path / "old").write_text("12")
    (tmp_path / "going").unlink()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "deep").write_text("")
    found, complete = changes.scan()

    assert complete
    assert found == [
        {"path": "d/deep", "action": "created", "size": 0},
        {"path": "going", "action": "deleted", "size": 0},
        {"path": "new", "action": "created", "size": 5},
        {"path": "old", "action": "modified", "size": 2},
    ]
    assert said(changes) == []


def test_what_was_there_at_the_start_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")

    assert said(Changes(str(tmp_path))) == []


class _Slow(Changes):
    """The changes of a file system whose clock ticks once a year."""

    def _read_clock(self) -> int:
        return 0

    def _look(self, start: str) -> module._Look:
        look = super()._look(start)
        for files in look.folders.values():
            files.update({name: (0, size, number) for name, (_, size, number) in files.items()})
        return look


def test_a_file_that_changes_twice_in_one_tick_is_reported_each_time(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    old, deep = tmp_path / "old", tmp_path / "d" / "deep"
    old.write_text("1")
    changes = _Slow(str(tmp_path))

    changes.begin()
    old.write_text("2")
    deep.write_text("1")
    assert said(changes) == [("d/deep", "created"), ("old", "modified")]
    changes.begin()
    deep.write_text("2")
    assert said(changes) == [("d/deep", "modified")]
    changes.begin()
    assert said(changes) == []
    changes.begin()
    deep.write_text("12")
    assert said(changes) == [("d/deep", "modified")]


def test_what_a_gateway_wrote_in_one_tick_is_no_change_and_what_runs_then_is(tmp_path: Path) -> None:
    changes = _Slow(str(tmp_path))
    changes.begin()
    for text in ("1", "2"):
        (tmp_path / "f").write_text(text)
        changes.adopt("f")
    changes._folders[""]["f"] = (0, *changes._folders[""]["f"][1:])
    changes.begin()
    assert said(changes) == []
    changes.begin()
    (tmp_path / "f").write_text("3")
    assert said(changes) == [("f", "modified")]


def test_nothing_is_read_of_a_file_that_has_its_time(tmp_path: Path) -> None:
    changes = Changes(str(tmp_path))
    (tmp_path / "f").write_text("1")
    assert said(changes) == [("f", "created")]
    stamped = (tmp_path / "f").stat().st_ctime_ns
    while changes._read_clock() <= stamped:
        pass
    changes.begin()

    assert changes._kept == {}


def test_setting_the_clock_of_a_file_back_hides_nothing(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("before")
    before = file.stat()
    changes = Changes(str(tmp_path))

    file.write_text("AFTER!")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert said(changes) == [("f", "modified")]


def test_a_deleted_folder_takes_its_files_with_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "f").write_text("")
    (tmp_path / "a" / "g").write_text("")
    changes = Changes(str(tmp_path))

    os.unlink(tmp_path / "a" / "b" / "f")
    os.rmdir(tmp_path / "a" / "b")
    os.unlink(tmp_path / "a" / "g")
    os.rmdir(tmp_path / "a")

    assert said(changes) == [("a/b/f", "deleted"), ("a/g", "deleted")]


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("")
    inside = tmp_path / "inside"
    inside.mkdir()
    changes = Changes(str(inside))

    os.symlink(outside, inside / "link")
    os.symlink(inside, inside / "circle")

    assert said(changes) == [("circle", "created"), ("link", "created")]


def test_what_is_ignored_or_adopted_is_not_reported(tmp_path: Path) -> None:
    changes = Changes(str(tmp_path))
    changes.ignored.add(".temporary")

    (tmp_path / ".temporary").write_text("")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "mine").write_text("")
    (tmp_path / "theirs").write_text("")
    changes.adopt("d")

    assert said(changes) == [("theirs", "created")]


def test_what_installers_put_there_is_not_reported(tmp_path: Path) -> None:
    changes = Changes(str(tmp_path))
    for name in (".packages/lib/one.py", "node_modules/two/index.js", "site/node_modules/three.js"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("another program's")
    (tmp_path / "site" / ".packages").mkdir()
    (tmp_path / "site" / ".packages" / "own.py").write_text("own")
    (tmp_path / "site" / "node_modules.txt").write_text("own")

    assert [change["path"] for change in changes.scan()[0]] == ["site/.packages/own.py", "site/node_modules.txt"]


def test_a_file_that_is_adopted_with_the_folder_it_is_in_is_not_reported(tmp_path: Path) -> None:
    changes = Changes(str(tmp_path))

    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "e" / "mine").write_text("")
    (tmp_path / "d" / "e" / "theirs").write_text("")
    changes.adopt("d/e/mine")

    assert said(changes) == [("d/e/theirs", "created")]


def test_at_most_a_thousand_are_listed(tmp_path: Path) -> None:
    changes = Changes(str(tmp_path))
    for number in range(module.MAX_CHANGES + 1):
        (tmp_path / str(number)).touch()

    found, complete = changes.scan()

    assert len(found) == module.MAX_CHANGES
    assert not complete
    assert said(changes) == []


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A workspace of many more files than the budget: flat and deep."""
    root = tmp_path_factory.mktemp("crowded")
    for folder in range(200):
        os.mkdir(root / f"d{folder}")
        for number in range(150):
            os.close(os.open(root / f"d{folder}" / str(number), os.O_CREAT | os.O_WRONLY))
    return str(root)


def test_beyond_the_budget_it_reports_what_it_saw_and_no_more(crowded: str) -> None:
    changes = Changes(crowded)
    first, complete = changes.scan()
    assert not complete

    with open(os.path.join(crowded, "top"), "w") as file:
        file.write("seen first: the top is looked at before what lies deeper")
    found, complete = changes.scan()

    assert not complete
    assert {"path": "top", "action": "created"}.items() <= found[0].items()
    assert all(one["action"] != "deleted" for one in first + found)
    os.unlink(os.path.join(crowded, "top"))
    assert ("top", "deleted") in [(one["path"], one["action"]) for one in changes.scan()[0]]


class Stalling(set[str]):
    """Names to ignore: the first lookup takes the thread off the processor for longer than a scan may take."""

    has_stalled = False

    def __contains__(self, name: object) -> bool:
        if not self.has_stalled:
            self.has_stalled = True
            select.select([], [], [], 1.5 * module.MAX_SECONDS)
        return False


def test_a_small_workspace_is_seen_whole_though_others_have_the_processor(tmp_path: Path) -> None:
    for number in itertools.count():
        changes = Changes(str(tmp_path))
        changes.ignored = Stalling()
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "new").touch()
        began = time.monotonic()
        found, complete = changes.scan()
        if time.monotonic() - began < module.MAX_BUSY_SECONDS:  # else others had it for longer than a scan waits
            break

    assert complete
    assert [(one["path"], one["action"]) for one in found] == [(f"{number}/new", "created")]


class Busy(set[str]):
    """Names to ignore: a search for the first takes longer than a scan may take."""

    asked = 0

    def __contains__(self, name: object) -> bool:
        self.asked += 1
        since = time.thread_time()
        while self.asked == 1 and time.thread_time() - since <= module.MAX_SECONDS:
            pass
        return False


def test_when_the_budget_of_time_is_used_up_no_other_folder_is_looked_at(crowded: str) -> None:
    changes = Changes(crowded)
    changes.ignored = busy = Busy()
    _, complete = changes.scan()

    assert not complete
    assert busy.asked <= len(os.listdir(crowded))


def test_of_an_empty_workspace_nothing_is_looked_at(tmp_path: Path) -> None:
    changes = Changes(str(tmp_path))
    changes.ignored = busy = Busy()

    assert [changes.scan() for _ in range(3)] == [([], True)] * 3
    assert busy.asked == 0
