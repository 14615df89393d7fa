"""Memory for answers that clients have not read yet, limited for each owner and in all.

A client that calls tools and reads nothing would otherwise have every answer held here until it is given up.
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
"""For one owner; one answer alone always fits."""
EVERYBODY = 512 * MIB
PENDING = "mcp_pending"
"""The key of a request's `PendingAnswer` in its state."""
WHY = "Your client has not read the answers of earlier calls, and there is no room for more: read them, and call again."
_PIECE = 64 << 10


class AnswerMemory:
    """Counts the bytes of unread answers."""

    def __init__(self, own: int = OWN, everybody: int = EVERYBODY) -> None:
        self._most_own = own
        self._most = everybody
        self._own: Counter[Owner] = Counter()
        self.held = 0

    def take(self, owner: Owner, size: int) -> bool:
        """Count an answer; False where it does not fit."""
        own = self._own[owner]
        if (own and own + size > self._most_own) or (self.held and self.held + size > self._most):
            return False
        self._own[owner] += size
        self.held += size
        return True

    def give_back(self, owner: Owner, size: int) -> None:
        """Stop counting an answer."""
        self.held -= size
        self._own[owner] -= size
        if not self._own[owner]:
            del self._own[owner]

    @contextlib.contextmanager
    def one(self, owner: Owner) -> Iterator[PendingAnswer]:
        """Count the answer of one request until the request ends."""
        answer = PendingAnswer(self, owner)
        try:
            yield answer
        finally:
            answer.is_over = True
            self.give_back(owner, answer.size)


class PendingAnswer:
    """The count of one request's answer."""

    def __init__(self, memory: AnswerMemory, owner: Owner) -> None:
        self._memory = memory
        self._owner = owner
        self.size = 0
        self.is_over = False
        """Whether its client has left: later answers go nowhere and are not counted."""

    def fits(self, answer: Any) -> bool:
        """Count an answer; False where it does not fit."""
        if self.is_over:
            return True
        size = weigh(answer)
        is_taken = self._memory.take(self._owner, size)
        self.size += size if is_taken else 0
        return is_taken


def weigh(value: Any) -> int:
    """Estimate the bytes of all texts in a nested value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(weigh, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(weigh, value))
    fields = getattr(value, "__dict__", None)
    return weigh(fields) if fields else 0


def in_pieces(send: Send) -> Send:
    """Send a long body in pieces: the server takes each piece whole, and waits before the next for a slow client."""

    async def send_it(message: Message) -> None:
        body = message.get("body", b"")
        if message["type"] == "http.response.body" and len(body) > _PIECE:
            view, is_more = memoryview(body), message.get("more_body", False)
            for at in range(0, len(view), _PIECE):
                await send({"type": "http.response.body", "body": bytes(view[at : at + _PIECE]), "more_body": True})
            message = {"type": "http.response.body", "body": b"", "more_body": is_more}
        await send(message)

    return send_it
