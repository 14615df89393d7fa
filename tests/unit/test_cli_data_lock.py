"""The lock of a data folder tells who has it, whatever its text says."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from warren.cli.service.data_lock import COMMAND, SERVICE, Held, find_holder, only_one
from warren.cli.service.server import Server

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType


def test_the_holder_of_a_folder_is_found_with_its_own_words(tmp_path: Path) -> None:
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


def test_a_folder_that_was_never_served_has_no_holder(tmp_path: Path) -> None:
    assert find_holder(str(tmp_path / "missing")) is None
    assert not (tmp_path / "missing").exists()


def test_a_process_of_the_same_number_as_the_holder_before_is_not_taken_for_the_holder(tmp_path: Path) -> None:
    """The text is of one that is dead, or of another container; the number is ours, as anybody's may be."""
    with only_one(str(tmp_path)) as hold:
        hold.note(SERVICE, address="http://127.0.0.1:8000")
        pid, said, _ = (tmp_path / "service.lock").read_text().split("\n")
        (tmp_path / "service.lock").write_text(f"{pid}\n{json.dumps(json.loads(said) | {'start': 1})}\n")
        holder = find_holder(str(tmp_path))

    assert pid == str(os.getpid())
    assert holder is not None
    assert (holder.pid, holder.what, holder.address) == (0, "another process", "http://127.0.0.1:8000")


def test_a_reader_never_sees_a_half_written_holder(tmp_path: Path) -> None:
    seen = []

    def look(_frame: FrameType, event: str, function: object) -> None:
        if event == "c_return" and function in {os.ftruncate, os.pwrite}:
            seen.append(find_holder(str(tmp_path)))

    with only_one(str(tmp_path)) as hold:
        hold.note(SERVICE, address="http://[::1]:8000", log="/var/log/a/long/name")
        # Calls us after each call that the system gets.
        sys.setprofile(look)
        try:
            hold.note(SERVICE, address="http://[::1]:9000")
        finally:
            sys.setprofile(None)

    assert len(seen) == 2
    assert {(each.pid, each.kind, each.address) for each in seen if each is not None} == {
        (os.getpid(), SERVICE, "http://[::1]:9000")
    }


@pytest.mark.parametrize(
    ("signals", "is_forced"),
    [
        ([signal.SIGTERM], False),
        ([signal.SIGINT], False),
        ([signal.SIGTERM, signal.SIGTERM], False),
        ([signal.SIGINT, signal.SIGINT], True),
        ([signal.SIGTERM, signal.SIGINT], True),
        ([signal.SIGINT, signal.SIGTERM], True),
        ([signal.SIGTERM, signal.SIGINT, signal.SIGTERM], True),
    ],
)
def test_what_stop_now_sends_ends_a_service_at_once_in_whatever_order_it_comes(
    signals: list[signal.Signals], is_forced: bool
) -> None:
    config, service = _Anything(), _Anything()
    server = Server(config, config, config, service, drain_s=1)  # type: ignore[arg-type]  # nothing is served
    for number in signals:
        server.handle_exit(number, None)

    assert (server.should_exit, server.force_exit) == (True, is_forced)


class _Anything:
    loaded = True

    def drain(self) -> None:
        """Take no more."""
