"""Bytes both ways through the link to a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.core.agent.streams import AgentStream
    from warren.guest.wire.frames import Header


class ByteStream:
    """Bytes both ways through the sandbox's link: a connection to a port, or one that a program inside made."""

    def __init__(self, stream: AgentStream) -> None:
        self._stream = stream
        self._answer: Header | None = None
        self._ended = False

    @property
    def is_over(self) -> bool:
        """Whether nobody is there any more to take what we send."""
        return self._stream.answered

    def widen(self, window: int) -> None:
        """Hold this much of what arrives and is not read, where it began with less."""
        self._stream.widen(window)

    async def send(self, data: bytes) -> None:
        """Send all of `data`; what the other end no longer takes is dropped."""
        await self._stream.send(data)

    def send_eof(self) -> None:
        """Say that no more follows from us; receiving goes on."""
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
        """Wait for the agent's last word, passing over data that nobody received."""
        if self._answer is None:
            self._answer, _ = await self._stream.answer()
        return self._answer

    async def aclose(self) -> None:
        """Close it. Safe to call twice."""
        self._stream.close()
