"""Retries: whether, and after how long. No I/O."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

from warren.domain.errors import Overloaded, QuotaExceeded

if TYPE_CHECKING:
    from warren.domain.errors import Error
    from warren.sdk.request import Request

_FIRST_S = 0.2
_REFUSALS = {QuotaExceeded.code, Overloaded.code}
"""Codes of refusals before anything was done: also requests that are not idempotent are retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often, and how long, a client tries again by itself. `Retries(most=0)` never does."""

    most: int = 3
    """Times, after the first."""
    longest_s: float = 30.0
    """The longest wait between two; a service that asks for a longer one is not asked again."""

    def after_break(self, request: Request, error: httpx.TransportError, tried: int) -> float | None:
        """Return how long to wait after a connection failed; None: give up."""
        was_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        can_tell = isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError | httpx.TimeoutException)
        if tried > self.most or not can_tell or not request.can_send_again or (was_sent and not request.is_repeatable):
            return None
        return self.back_off(tried)

    def after_answer(self, request: Request, error: Error, tried: int) -> float | None:
        """Return how long to wait after an answer that is an error; None: it is the answer."""
        if tried > self.most or error.status not in {429, 503} or not error.retryable or not request.can_send_again:
            return None
        if error.code not in _REFUSALS and not request.is_repeatable:
            return None
        wait = error.retry_after_s
        if wait is not None and wait > self.longest_s:
            return None
        # Jitter: clients that were refused together must not come back together.
        return self.back_off(tried) if wait is None else wait + random.random() * _FIRST_S  # noqa: S311 - no secret

    def back_off(self, tried: int) -> float:
        """Return how long to wait after so many failures in a row."""
        return min(self.longest_s, _FIRST_S * float(2 ** (tried - 1)) * (1 + random.random()))  # noqa: S311 - no secret
