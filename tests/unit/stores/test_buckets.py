from __future__ import annotations

import math

from warren.stores import quotas
from warren.stores.quotas import Buckets


def test_a_bucket_that_never_fills_says_so() -> None:
    rates = Buckets()

    assert rates.take("b", capacity=1, per_s=0, amount=1).allowed
    assert rates.take("b", capacity=1, per_s=0, amount=1).retry_after_s == math.inf
    assert rates.take("c", capacity=1, per_s=1, amount=2).retry_after_s == math.inf


def test_a_bucket_whose_capacity_shrinks_holds_no_more_than_that() -> None:
    rates = Buckets()
    rates.take("b", capacity=100, per_s=0.001, amount=1)

    assert rates.take("b", capacity=5, per_s=0.001, amount=1).remaining == 4


def test_buckets_that_are_full_again_are_forgotten() -> None:
    rates = Buckets()
    for number in range(3 * quotas.MOST_BUCKETS):
        assert rates.take(f"quick {number}", capacity=1, per_s=1e9, amount=1).allowed
    rates.take("slow", capacity=1, per_s=0.001, amount=1)
    for number in range(3 * quotas.MOST_BUCKETS):
        rates.take(f"quicker {number}", capacity=1, per_s=1e9, amount=1)

    assert len(rates._buckets) <= 2 * quotas.MOST_BUCKETS
    assert not rates.take("slow", capacity=1, per_s=0.001, amount=1).allowed
