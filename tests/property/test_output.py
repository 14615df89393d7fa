"""However output is cut into writes, the same is kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.guest.wire.output import HeadTail


@given(st.lists(st.binary(max_size=3000), max_size=20), st.integers(0, 5000))
def test_what_is_kept_does_not_depend_on_how_it_was_written(writes: list[bytes], limit: int) -> None:
    pieces, whole = HeadTail(limit), HeadTail(limit)
    for data in writes:
        pieces.add(data)
    whole.add(b"".join(writes))

    assert pieces.kept() == whole.kept()
    assert pieces.total == sum(map(len, writes))


@given(st.binary(max_size=20_000), st.integers(0, 5000))
def test_head_and_tail_are_the_ends_of_what_was_written(data: bytes, limit: int) -> None:
    output = HeadTail(limit)
    output.add(data)
    kept = output.kept()

    if not output.truncated:
        assert kept == data
        return
    head, _, rest = kept.partition("\n… ".encode())
    if "…".encode() not in data:
        tail = rest.split(" bytes left out …\n".encode(), 1)[1]
        assert data.startswith(head)
        assert data.endswith(tail)
        assert limit - 6 <= len(head) + len(tail) <= limit


@given(st.text(min_size=1, max_size=5000), st.integers(0, 2000))
def test_text_stays_text(text: str, limit: int) -> None:
    output = HeadTail(limit)
    output.add(text.encode("utf-8", "replace"))

    output.kept().decode()
