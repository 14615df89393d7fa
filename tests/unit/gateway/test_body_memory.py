"""Memory for bodies: each owner has a part of it, and no owner all of it."""

from __future__ import annotations

import contextlib

import pytest

from warren.domain.errors import Overloaded, QuotaExceeded
from warren.domain.records import Owner
from warren.gateway.api.body_memory import BodyMemory

ANN, BOB = Owner("tests", "ann"), Owner("tests", "bob")


def test_what_is_let_go_can_be_held_again() -> None:
    memory = BodyMemory(own=10, everybody=20)
    for _ in range(3):
        with memory.hold(ANN, 10):
            assert memory.held == 10
    assert memory.held == 0


def test_only_the_owner_who_holds_too_much_is_refused() -> None:
    memory = BodyMemory(own=10, everybody=20)
    with memory.hold(ANN, 6), memory.hold(ANN, 4):
        with pytest.raises(QuotaExceeded) as refused, memory.hold(ANN, 1):
            pytest.fail("there was no memory")
        assert refused.value.retry_after_s > 0
        with memory.hold(BOB, 10):
            assert memory.held == 20


def test_all_together_hold_no_more_than_there_is() -> None:
    memory = BodyMemory(own=10, everybody=15)
    with memory.hold(ANN, 10), pytest.raises(Overloaded), memory.hold(BOB, 10):
        pytest.fail("there was no memory")


def test_one_body_alone_always_fits() -> None:
    memory = BodyMemory(own=10, everybody=15)
    with memory.hold(ANN, 100):
        assert memory.held == 100


def test_room_is_given_back_however_it_ends() -> None:
    memory = BodyMemory(own=10, everybody=15)
    with contextlib.suppress(ValueError), memory.hold(ANN, 10):
        raise ValueError
    assert memory.held == 0
