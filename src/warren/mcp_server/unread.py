"""Answers that were made and are not read yet: so much of them for each owner.

Whoever calls tools and reads no answers would otherwise have all of them held here, for as long as it is waited for.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from warren.domain.values import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Message, Send

    from warren.domain.records import Owner

OWN = 48 * MIB
"""Of one owner; one answer alone always fits."""
EVERYBODY = 512 * MIB
UNREAD = "mcp_unread"
"""Where in the state of a request is what counts its answer."""
WHY = "Your client has not read the answers of earlier calls, and there is no room for more: read them, and call again."
_PIECE = 64 << 10


class Unread:
    """Counts bytes."""

    def __init__(self, own: int = OWN, everybody: int = EVERYBODY) -> None:
        self._most_own = own
        self._most = everybody
        self._own: Counter[Owner] = Counter()
        self.held = 0

    def take(self, owner: Owner, size: int) -> bool:
        """Count an answer, unless that would be too much."""
        own = self._own[owner]
        if (own and own + size > self._most_own) or (self.held and self.held + size > self._most):
            return False
        self._own[owner] += size
        self.held += size
        return True

    def give_back(self, owner: Owner, size: int) -> None:
        """Count it no longer."""
        self.held -= size
        self._own[owner] -= size
        if not self._own[owner]:
            del self._own[owner]

    @contextlib.contextmanager
    def one(self, owner: Owner) -> Iterator[Answer]:
        """Have what counts the answer of one request, for as long as that lasts."""
        answer = Answer(self, owner)
        try:
            yield answer
        finally:
            answer.is_over = True
            self.give_back(owner, answer.size)


class Answer:
    """Counts the answer of one request."""

    def __init__(self, unread: Unread, owner: Owner) -> None:
        self._unread = unread
        self._owner = owner
        self.size = 0
        self.is_over = False
        """Whether its client has left, so that what is made after that goes nowhere."""

    def fits(self, answer: Any) -> bool:
        """Count it; whether there was room."""
        if self.is_over:
            return True
        size = weigh(answer)
        is_taken = self._unread.take(self._owner, size)
        self.size += size if is_taken else 0
        return is_taken


def weigh(value: Any) -> int:
    """Say about how many bytes the texts in a value take, however it is nested."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(weigh, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(weigh, value))
    fields = getattr(value, "__dict__", None)
    return weigh(fields) if fields else 0


def in_pieces(send: Send) -> Send:
    """Return what sends a long body piece by piece: the server takes each whole, but waits with the next."""

    async def send_it(message: Message) -> None:
        body = message.get("body", b"")
        if message["type"] == "http.response.body" and len(body) > _PIECE:
            view, is_more = memoryview(body), message.get("more_body", False)
            for at in range(0, len(view), _PIECE):
                await send({"type": "http.response.body", "body": bytes(view[at : at + _PIECE]), "more_body": True})
            message = {"type": "http.response.body", "body": b"", "more_body": is_more}
        await send(message)

    return send_it
