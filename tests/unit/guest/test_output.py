"""What is kept of a program's output."""

from __future__ import annotations

from warren.guest.wire.output import HeadTail


def test_output_within_the_limit_is_kept_whole() -> None:
    kept = HeadTail(10)
    kept.add(b"hello")
    kept.add(b"world")

    assert kept.kept() == b"helloworld"
    assert not kept.truncated


def test_longer_output_keeps_head_and_tail_and_says_what_is_missing() -> None:
    kept = HeadTail(10)
    kept.add(b"a" * 2000 + b"z" * 2000)

    assert kept.kept() == "aaaaa\n… 3,990 bytes left out …\nzzzzz".encode()
    assert kept.truncated
    assert kept.total == 4000


def test_a_cut_never_leaves_half_a_character() -> None:
    kept = HeadTail(9)
    kept.add("€".encode() * 100)

    assert kept.kept().decode() == "€\n… 294 bytes left out …\n€"


def test_bytes_that_are_no_text_are_cut_where_the_limit_says() -> None:
    kept = HeadTail(8)
    kept.add(b"\x80" * 100)

    assert kept.kept().count(b"\x80") >= 8


def test_a_limit_of_nothing_keeps_only_the_marker() -> None:
    kept = HeadTail(0)
    kept.add(b"x" * 10_000)

    assert kept.kept() == "\n… 10,000 bytes left out …\n".encode()


def test_the_beginning_alone_is_kept_without_a_marker_and_without_half_a_character() -> None:
    kept = HeadTail(4, has_tail=False)
    for piece in (b"ab", "c\u20ac".encode(), b"x" * 100_000):
        kept.add(piece)

    assert (kept.kept(), kept.truncated, kept.total) == (b"abc", True, 100_006)


def test_characters_are_counted_also_where_one_comes_in_pieces() -> None:
    kept = HeadTail(4)
    for byte in "aä\u20ac\U0001f600".encode():
        kept.add(bytes([byte]))

    assert (kept.total, kept.characters) == (10, 4)
