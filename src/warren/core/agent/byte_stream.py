"""Byte stream: bytes both ways over the connection to an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.core.agent.streams import AgentStream
    from warren.guest.wire.frames import Header


class ByteStream:
    """A connection to a port inside, or one that a program inside made."""

    def __init__(self, stream: AgentStream) -> None:
        self._stream = stream
        self._answer: Header | None = None
        self._ended = False

    @property
    def is_over(self) -> bool:
        """Whether the other end takes no more of what we send."""
        return self._stream.answered

    def widen(self, window: int) -> None:
        """Allow this many unread bytes, where it began with less."""
        self._stream.widen(window)

    async def send(self, data: bytes) -> None:
        """Send all of `data`; the rest is dropped once the other end takes no more."""
        await self._stream.send(data)

    def send_eof(self) -> None:
        """Send the end of our data; receiving goes on."""
        self._stream.send_eof()

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" when no more follow. Raises Conflict when the connection broke."""
        while not self._ended:
            header, payload = await self._stream.next()
            if header["t"] == "data":
                return payload
            if header["t"] in {"eof", "ok"}:
                self._ended = True
                self._answer = header if header["t"] == "ok" else None
        return b""

    async def wait(self) -> Header:
        """Wait for the last frame of the agent, discarding unread data."""
        if self._answer is None:
            self._answer, _ = await self._stream.answer()
        return self._answer

    async def aclose(self) -> None:
        """Close it. Safe to call twice."""
        self._stream.close()
