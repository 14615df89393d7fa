"""The lock of a data folder tells who has it, whatever its text says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from warren.cli.data_lock import COMMAND, SERVICE, Held, find_holder, only_one

if TYPE_CHECKING:
    from pathlib import Path


def test_whoever_holds_a_folder_is_found_with_what_they_say_of_themselves(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with only_one(folder) as hold:
        begun = find_holder(folder)
        hold.note(SERVICE, address="http://127.0.0.1:8000", log="/var/log/warren.log")
        ready = find_holder(folder)

    assert begun is not None
    assert ready is not None
    assert (begun.pid, begun.kind, begun.address) == (os.getpid(), SERVICE, "")
    assert (ready.address, ready.log) == ("http://127.0.0.1:8000", "/var/log/warren.log")
    assert find_holder(folder) is None


def test_a_second_holder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with only_one(str(tmp_path), COMMAND), pytest.raises(Held, match=f"by process {os.getpid()}"):
        only_one(str(tmp_path)).__enter__()

    with only_one(str(tmp_path)):
        pass


@pytest.mark.parametrize("text", ["", "\n", "none\n{}", "12\n[1]", "12\n{", "-1\n{}", "9" * 5000])
def test_whatever_is_in_the_file_of_a_held_folder_can_be_told(tmp_path: Path, text: str) -> None:
    with only_one(str(tmp_path)):
        (tmp_path / "service.lock").write_text(text)
        holder = find_holder(str(tmp_path))

    assert holder is not None
    assert holder.pid >= 0
    assert holder.what


def test_a_folder_that_was_never_served_is_nobodys(tmp_path: Path) -> None:
    assert find_holder(str(tmp_path / "missing")) is None
    assert not (tmp_path / "missing").exists()
