from __future__ import annotations

import httpx
import pytest

from warren.domain.errors import Conflict, Error, Overloaded, QuotaExceeded, StoreError
from warren.sdk.content import Content
from warren.sdk.request import Request
from warren.sdk.retries import Retries

GET = Request(method="GET", path="/")
POST = Request(method="POST", path="/")
KEYED = Request(method="POST", path="/", repeatable=True)
ONCE = Request(method="PUT", path="/", content=Content.of(iter([b"x"])))
REFUSED, BROKEN = httpx.ConnectError(""), httpx.ReadError("")


@pytest.mark.parametrize(
    ("request_", "error", "again"),
    [
        (GET, REFUSED, True),
        (GET, BROKEN, True),
        (GET, httpx.ReadTimeout(""), True),
        (KEYED, BROKEN, True),
        (POST, REFUSED, True),
        (POST, BROKEN, False),
        (POST, httpx.ReadTimeout(""), False),
        (POST, httpx.RemoteProtocolError(""), False),
        (ONCE, REFUSED, False),
        (GET, httpx.UnsupportedProtocol(""), False),
    ],
)
def test_what_broke_is_sent_again_only_where_that_is_safe(
    request_: Request, error: httpx.TransportError, again: bool
) -> None:
    assert (Retries().after_break(request_, error, 1) is not None) is again


@pytest.mark.parametrize(
    ("request_", "error", "again"),
    [
        (GET, StoreError(""), True),
        (POST, StoreError(""), False),
        (KEYED, StoreError(""), True),
        (POST, Overloaded("", retry_after_s=1), True),
        (POST, QuotaExceeded("", retry_after_s=1), True),
        (ONCE, QuotaExceeded("", retry_after_s=1), False),
        (GET, Conflict(""), False),
    ],
)
def test_what_was_refused_is_asked_again_only_where_that_is_safe(request_: Request, error: Error, again: bool) -> None:
    assert (Retries().after_answer(request_, error, 1) is not None) is again


def test_an_overload_that_is_not_to_be_retried_is_not() -> None:
    stopped = Overloaded("look at what became of it")
    stopped.retryable = False

    assert Retries().after_answer(GET, stopped, 1) is None


def test_the_service_says_how_long_to_wait() -> None:
    wait = Retries().after_answer(GET, Overloaded("", retry_after_s=7), 1)

    assert wait is not None
    assert 7 <= wait <= 7.5


def test_a_wait_that_is_too_long_is_the_callers_to_decide() -> None:
    retries = Retries(longest_s=5)

    assert retries.after_answer(GET, QuotaExceeded("", retry_after_s=6), 1) is None
    assert retries.after_answer(GET, QuotaExceeded("", retry_after_s=5), 1) is not None


def test_waits_grow_and_end() -> None:
    retries = Retries(most=4, longest_s=1)
    waits = [retries.after_break(GET, BROKEN, tried) for tried in (1, 2, 3, 4)]

    assert all(wait is not None and wait <= 1 for wait in waits)
    assert retries.after_break(GET, BROKEN, 5) is None
    assert Retries(most=0).after_break(GET, BROKEN, 1) is None
