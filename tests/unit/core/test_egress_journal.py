"""Egress journal: entries are recovered, cleared ones are not, and torn ones are skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from warren.core.egress.record import EgressJournal
from warren.domain.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_under_way_is_found_by_the_next_and_what_is_over_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "journal")
    journal = EgressJournal(path)
    assert journal.read() == []
    one, two, three = (journal.put(None, {"id": name, "bytes": 0}) for name in ("one", "two", "three"))
    journal.put(three, {"id": "three", "bytes": 7})
    journal.clear(one)
    journal.clear(two)
    whose = {"tenant": "ü" * 64, "subject": "\U0001f407" * 255}
    journal.put(three, {"id": "three", **dict.fromkeys(("host", "rule", "secrets", "server_name"), "x" * 255), **whose})
    again = journal.put(None, {"id": "four", "host": "x" * 5000, "rule": "\x01" * 5000, "tenant": "\x01" * 5000})

    after = EgressJournal(path)
    found = dict(after.read())
    assert again in {one, two}
    cut = dict.fromkeys(("host", "rule", "secrets", "server_name"), "x" * 60)
    assert found[three] == {"id": "three", **cut, **whose}
    assert (found[again]["id"], found[again]["host"], len(found)) == ("four", "x" * 60, 2)
    # What was found keeps its place until it is written down, and new ones take others.
    assert after.put(None, {"id": "five"}) not in found
    after.clear(three)
    assert {entry["id"] for _, entry in EgressJournal(path).read()} == {"four", "five"}


def test_what_is_torn_is_left_out_and_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    EgressJournal(str(path)).put(None, {"id": "whole"})
    path.write_bytes(path.read_bytes() + b'{"id": "to' + bytes(2038) + b"[1]" + b"\xff" * 10)

    assert [entry["id"] for _, entry in EgressJournal(str(path)).read()] == ["whole"]
    for broken in (EgressJournal(str(tmp_path)), EgressJournal(str(path / "below"))):
        with pytest.raises(StoreError):
            broken.put(None, {"id": "x"})
