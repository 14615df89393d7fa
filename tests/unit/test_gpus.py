"""What a caller may ask for in GPUs, and which devices it gets."""

from __future__ import annotations

from typing import Any

import pytest

from warren.domain.errors import Conflict, InvalidRequest
from warren.domain.gpus import MAX_GPUS, NO_GPUS, Gpu, GpuRequest, choose

ONE = Gpu(id="nvidia.com/gpu=0", aliases=("0", "GPU-aaaa"))
TWO = Gpu(id="nvidia.com/gpu=1", aliases=("1", "GPU-bbbb"))
BROKEN = Gpu(
    id="nvidia.com/gpu=2", aliases=("2",), usable=False, why="/dev/nvidia2 cannot be opened: Input/output error"
)
OTHER = Gpu(id="example.com/gpu=0", aliases=("0",))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (0, 0),
        (2, 2),
        ("2", 2),
        ("none", 0),
        ("all", "all"),
        ("auto", "auto"),
        ([], 0),
        (["0"], ("0",)),
        ("GPU-aaaa, nvidia.com/gpu=1", ("GPU-aaaa", "nvidia.com/gpu=1")),
        (["0", "0"], ("0",)),
        (["1"], ("1",)),
        (["all"], ("all",)),
        ("0,", ("0",)),
        ("0002", 2),
    ],
)
def test_a_request_is_a_word_a_number_or_names(said: Any, meant: object) -> None:
    request = GpuRequest.parse(said)

    assert request.wanted == meant
    assert GpuRequest.parse(request.plain()) == request
    assert GpuRequest.parse(str(request)) == request
    assert bool(request) is (meant != 0)


@pytest.mark.parametrize(
    "said",
    [
        -1,
        MAX_GPUS + 1,
        1.5,
        True,
        None,
        {},
        "",
        "some of them",
        "a b",
        ["a b"],
        [1],
        ["x" * 200],
        ["-"] * 65,
        "9" * 50,
        "00010000",
    ],
)
def test_anything_else_is_refused_in_a_sentence(said: Any) -> None:
    with pytest.raises(InvalidRequest, match="gpus must be all, auto, none, a number from 0 to"):
        GpuRequest.parse(said)


@pytest.mark.parametrize("said", ["-1", "9" * 20])
def test_a_refusal_repeats_what_was_written(said: str) -> None:
    with pytest.raises(InvalidRequest, match=f", not '{said}'$"):
        GpuRequest.parse(said)


def test_without_a_request_there_are_none() -> None:
    assert choose(NO_GPUS, [ONE]) == ()


def test_all_are_those_that_can_be_used() -> None:
    assert choose(GpuRequest("all"), [ONE, BROKEN, TWO]) == (ONE.id, TWO.id)


def test_auto_is_content_with_none() -> None:
    assert choose(GpuRequest("auto"), [BROKEN]) == ()
    assert choose(GpuRequest("auto"), [ONE, BROKEN]) == (ONE.id,)


def test_a_number_gives_those_that_the_fewest_sandboxes_have() -> None:
    busy = Gpu(id=ONE.id, sandboxes=2)
    shared = Gpu(id=OTHER.id, sandboxes=1)

    assert choose(GpuRequest(1), [busy, shared, TWO]) == (TWO.id,)
    assert choose(GpuRequest(2), [busy, shared, TWO]) == (shared.id, TWO.id)


def test_of_equals_one_is_taken_at_random() -> None:
    assert {choose(GpuRequest(1), [ONE, TWO]) for _ in range(64)} == {(ONE.id,), (TWO.id,)}


@pytest.mark.parametrize("name", ["nvidia.com/gpu=1", "1", "GPU-bbbb"])
def test_a_device_is_found_by_each_of_its_names(name: str) -> None:
    assert choose(GpuRequest((name,)), [ONE, TWO]) == (TWO.id,)


@pytest.mark.parametrize(
    ("request_", "devices", "said"),
    [
        (GpuRequest("all"), [], "asks for all, and there is none that can be used"),
        (GpuRequest(3), [ONE, TWO], "asks for 3, and there are 2 that can be used"),
        (GpuRequest(2), [ONE, BROKEN], "Input/output error"),
        (GpuRequest(("7",)), [ONE, TWO], "no such device: there is nvidia.com/gpu=0, nvidia.com/gpu=1"),
        (GpuRequest(("2",)), [ONE, BROKEN], "cannot be used .*Input/output error"),
    ],
)
def test_more_than_there_is_is_a_conflict_that_says_what_there_is(
    request_: GpuRequest, devices: list[Gpu], said: str
) -> None:
    with pytest.raises(Conflict, match=said):
        choose(request_, devices)


def test_a_name_that_two_devices_have_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"nvidia.com/gpu=0 and example.com/gpu=0 are both called"):
        choose(GpuRequest(("0",)), [ONE, OTHER])
