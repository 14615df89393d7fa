"""Sizes, durations and pairs, as the command line reads and writes them."""

from __future__ import annotations

import pytest
import typer

from warren.cli.units import (
    parse_copy,
    parse_duration,
    parse_pair,
    parse_size,
    parse_timeout,
    render_age,
    render_duration,
    render_size,
)
from warren.core.executions.request import MAX_TIMEOUT_S


@pytest.mark.parametrize(
    ("text", "size"),
    [("512M", 512 << 20), ("2G", 2 << 30), ("1.5g", 3 << 29), ("64KiB", 64 << 10), ("1000", 1000), ("7 mb", 7 << 20)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("5m", 300), ("250ms", 0.25), ("1.5h", 5400), ("2", 2)])
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


def test_a_program_may_run_as_long_as_the_service_lets_it() -> None:
    assert parse_timeout(f"{MAX_TIMEOUT_S:.0f}s") == MAX_TIMEOUT_S
    for text in (f"{MAX_TIMEOUT_S + 1:.0f}s", "9" * 400):
        with pytest.raises(typer.BadParameter, match="115d at most"):
            parse_timeout(text)


@pytest.mark.parametrize("text", ["", "M", "-1M", "1T1", "lots", "1e3", "5 parsecs"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="512M"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 fortnight"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="30s"):
        parse_duration(text)


def test_a_duration_of_nothing_is_refused() -> None:
    with pytest.raises(typer.BadParameter):
        parse_duration("0s")


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert parse_pair("A=b=c") == ("A", "b=c")
    assert parse_pair("EMPTY=") == ("EMPTY", "")
    for bad in ("A", "=b", ""):
        with pytest.raises(typer.BadParameter):
            parse_pair(bad)


def test_copies_keep_their_name_unless_given_another() -> None:
    assert parse_copy("a/b.csv") == ("a/b.csv", "b.csv")
    assert parse_copy("folder/") == ("folder/", "folder")
    assert parse_copy("a:in/b") == ("a", "in/b")
    for bad in ("", ".", "..", ":x"):
        with pytest.raises(typer.BadParameter):
            parse_copy(bad)


def test_amounts_are_written_as_people_read_them() -> None:
    assert [render_size(n) for n in (0, 999, 2048, 1536, 512 << 20, 5 << 40)] == [
        "0 bytes",
        "999 bytes",
        "2 KiB",
        "1.5 KiB",
        "512 MiB",
        "5120 GiB",
    ]
    assert [render_duration(s) for s in (0.25, 30, 90.04, 300)] == ["250 ms", "30 s", "90 s", "5 min"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0 s"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_an_age_is_in_the_unit_that_people_count_in(seconds: float, text: str) -> None:
    assert render_age(seconds) == text
