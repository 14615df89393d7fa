"""The link against an agent that asks and asks and never reads: what it is owed does not pile up here."""

from __future__ import annotations

import socket

import anyio

from warren.core.agent.client import AgentClient
from warren.core.agent.connection import MAX_OPENED
from warren.engines.unix_channel import UnixChannel
from warren.guest.wire.frames import PROTOCOL_VERSION, Header, encode

HELLO: Header = {"t": "hello", "version": PROTOCOL_VERSION, "sandbox": "sbx_00000000", "agent": "x", "executions": []}
UNSENT = 5 << 20
PINGS = 500_000


async def flood(headers: list[Header], most: int) -> tuple[int, bool]:
    """Send these again and again and read nothing; return what the link owes us then, and whether it broke off."""
    ours, theirs = socket.socketpair()
    agent = UnixChannel(theirs)
    try:
        await agent.send(b"".join(encode(HELLO)))
        async with AgentClient(UnixChannel(ours)) as link:
            frames = b"".join(b"".join(encode(header)) for header in headers)
            with anyio.move_on_after(60):
                for _ in range(most // len(headers)):
                    await agent.send(frames)
                    if link.lost is not None:
                        break
            return link._unsent, link.broke_protocol
    finally:
        await agent.aclose()


def test_pings_are_not_answered_to_one_that_does_not_read() -> None:
    unsent, _ = anyio.run(flood, [{"t": "ping"}] * 10_000, PINGS)
    assert unsent < UNSENT


def test_a_few_streams_too_many_are_refused_and_the_link_goes_on() -> None:
    many = MAX_OPENED * 4
    headers: list[Header] = [{"t": "open", "id": 2 * number + 2, "kind": "tunnel", "port": 1} for number in range(many)]
    unsent, broke = anyio.run(flood, headers, many)
    assert unsent < UNSENT
    assert not broke
