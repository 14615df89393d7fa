"""Ranges and conditions, as RFC 9110 has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.domain.errors import OutOfRange, PreconditionFailed
from warren.domain.values import Entry
from warren.gateway.dialects.native.ranges import Conditions, Span, etag, last_modified, parse_range

FILE = Entry("a.txt", "file", 1000, 0o644, 784_111_777_123_456_789)
DATE = "Sun, 06 Nov 1994 08:49:37 GMT"
EARLIER, LATER = "Sun, 06 Nov 1994 08:49:36 GMT", "Sun, 06 Nov 1994 08:49:38 GMT"


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("bytes=0-0", Span(0, 1)),
        ("bytes=0-99", Span(0, 100)),
        ("bytes=990-", Span(990, 10)),
        ("bytes=-10", Span(990, 10)),
        ("bytes=-5000", Span(0, 1000)),
        ("bytes=999-5000", Span(999, 1)),
        (" Bytes = 5 - 6 ", Span(5, 2)),
    ],
)
def test_one_range_is_a_part(text: str, span: Span) -> None:
    assert parse_range(text, 1000) == span


@pytest.mark.parametrize(
    "text", ["bytes=0-1,5-6", "bytes=", "bytes=-", "bytes=5-4", "lines=1-2", "bytes=a-b", "", "bytes=٣-٤", "bytes=+1-2"]
)
def test_what_is_no_single_range_is_the_whole(text: str) -> None:
    assert parse_range(text, 1000) is None


@pytest.mark.parametrize(
    ("text", "size"), [("bytes=1000-", 1000), ("bytes=1000-1001", 1000), ("bytes=-0", 1000), ("bytes=0-", 0)]
)
def test_a_part_that_the_file_does_not_have_is_refused_with_its_size(text: str, size: int) -> None:
    with pytest.raises(OutOfRange, match="bytes") as refused:
        parse_range(text, size)

    assert refused.value.size == size


@given(st.text(max_size=60) | st.from_regex(r"bytes=[0-9]{0,25}-[0-9]{0,25}", fullmatch=True), st.integers(0, 1 << 62))
def test_whatever_is_asked_for_lies_inside_the_file(text: str, size: int) -> None:
    try:
        span = parse_range(text, size)
    except OutOfRange:
        return

    assert span is None or (span.length >= 1 and 0 <= span.start < span.start + span.length <= size)


def test_a_part_says_which_it_is() -> None:
    assert Span(5, 10).content_range(100) == "bytes 5-14/100"


def test_the_tag_changes_with_size_and_time() -> None:
    later = Entry("a.txt", "file", 1000, 0o644, FILE.mtime_ns + 1)
    longer = Entry("a.txt", "file", 1001, 0o644, FILE.mtime_ns)

    assert len({etag(FILE), etag(later), etag(longer)}) == 3
    assert last_modified(FILE) == DATE


@pytest.mark.parametrize("mtime_ns", [-(1 << 62), 0, (1 << 63) - 1])
def test_times_that_http_cannot_say_are_said_as_near_as_it_can(mtime_ns: int) -> None:
    entry = Entry("a", "file", 1, 0o644, mtime_ns)

    assert last_modified(entry).endswith("GMT")
    assert etag(entry).isascii()


def test_who_has_the_tag_needs_nothing() -> None:
    tag = etag(FILE)

    for value in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        assert Conditions(if_none_match=value).is_unchanged(FILE)
    assert not Conditions(if_none_match='"x"').is_unchanged(FILE)


def test_a_tag_is_asked_before_a_date() -> None:
    assert not Conditions(if_none_match='"x"', if_modified_since=LATER).is_unchanged(FILE)


@pytest.mark.parametrize(("since", "unchanged"), [(EARLIER, False), (DATE, True), (LATER, True), ("nonsense", False)])
def test_a_file_is_unchanged_since_its_date(since: str, unchanged: bool) -> None:
    assert Conditions(if_modified_since=since).is_unchanged(FILE) is unchanged


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(if_match='"x"'),
        Conditions(if_match=f"W/{etag(FILE)}"),
        Conditions(if_unmodified_since=EARLIER),
        Conditions(if_none_match="*"),
        Conditions(if_none_match=etag(FILE)),
    ],
)
def test_a_write_whose_condition_does_not_hold_is_refused(conditions: Conditions) -> None:
    with pytest.raises(PreconditionFailed):
        conditions.check_write(FILE)


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(),
        Conditions(if_match=etag(FILE)),
        Conditions(if_match="*"),
        Conditions(if_unmodified_since=DATE),
        Conditions(if_unmodified_since="nonsense"),
        Conditions(if_match=etag(FILE), if_unmodified_since=EARLIER),
        Conditions(if_none_match='"x"'),
    ],
)
def test_a_write_whose_condition_holds_goes_ahead(conditions: Conditions) -> None:
    conditions.check_write(FILE)


def test_where_nothing_is_only_a_new_file_can_be_meant() -> None:
    Conditions(if_none_match="*").check_write(None)
    for conditions in (Conditions(if_match="*"), Conditions(if_unmodified_since=DATE)):
        with pytest.raises(PreconditionFailed):
            conditions.check_write(None)


@pytest.mark.parametrize(
    ("if_range", "wanted"),
    [(etag(FILE), True), ('"x"', False), (f"W/{etag(FILE)}", False), (DATE, True), (EARLIER, False), (LATER, False)],
)
def test_a_part_of_a_file_that_changed_is_the_whole(if_range: str, wanted: bool) -> None:
    assert (Conditions(range="bytes=0-9", if_range=if_range).span(FILE) is not None) is wanted


def test_conditions_are_read_from_headers() -> None:
    def header(name: bytes) -> str | None:
        return {b"if-none-match": "*", b"range": "bytes=1-2"}.get(name)

    conditions = Conditions.of(header)

    assert conditions
    assert conditions.wants_new
    assert (conditions.range, conditions.if_match) == ("bytes=1-2", None)
    assert not Conditions.of(lambda _name: None)
