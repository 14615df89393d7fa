"""SOCKS 4, 4a and 5 of the egress proxy, CONNECT only: requests are parsed without I/O, and become tunnels."""

from __future__ import annotations

import enum
import ipaddress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio

from warren.core.egress.connection import Asked
from warren.core.egress.dialer import Unreached
from warren.core.egress.http import HEAD_S, HttpSession
from warren.core.egress.message import BadRequest, read_authority
from warren.core.egress.session import Limited, Refused
from warren.core.egress.tunnel import run_tunnel

if TYPE_CHECKING:
    from warren.core.egress.session import Session

MAX_REQUEST = 1024
NO_PASSWORD = b"\x05\x00"
NO_METHOD = b"\x05\xff"
_CONNECT = 1


class Reply(enum.Enum):
    """Replies, in the numbers of both versions."""

    OK = (0, 90)
    FAILED = (1, 91)
    REFUSED = (2, 91)
    """By the policy."""
    UNREACHABLE = (4, 91)
    UNSUPPORTED = (7, 91)


class NotSocks(ValueError):
    """A request that is not served. The message is for tests; programs get a reply code."""


@dataclass(frozen=True, slots=True)
class SocksRequest:
    """A CONNECT request."""

    version: int
    host: str
    port: int
    is_connect: bool

    def answer(self, reply: Reply) -> bytes:
        """Build the reply."""
        five, four = reply.value
        if self.version == 5:
            return bytes((5, five, 0, 1)) + bytes(6)
        return bytes((0, four)) + bytes(6)


def parse_greeting(data: bytes) -> tuple[bytes, bytes] | None:
    """Parse a greeting of version 5: return the reply and the rest; None when more bytes are needed."""
    if len(data) < 2 or len(data) < 2 + data[1]:
        return None
    methods, rest = data[2 : 2 + data[1]], data[2 + data[1] :]
    return (NO_PASSWORD if 0 in methods else NO_METHOD), rest


def parse_request(data: bytes) -> tuple[SocksRequest, bytes] | None:
    """Parse a request of either version: return it and the rest; None when more bytes are needed. Raises NotSocks."""
    if not data:
        return None
    if len(data) > MAX_REQUEST:
        raise NotSocks("a request without an end")
    return _parse_five(data) if data[0] == 5 else _parse_four(data)


def _parse_five(data: bytes) -> tuple[SocksRequest, bytes] | None:
    if len(data) < 5:
        return None
    kind = data[3]
    sizes = {1: 4, 3: data[4] + 1, 4: 16}
    if kind not in sizes:
        raise NotSocks("an address of an unknown kind")
    end = 4 + sizes[kind]
    if len(data) < end + 2:
        return None
    host = _name(data[5:end]) if kind == 3 else str(ipaddress.ip_address(data[4:end]))
    return SocksRequest(5, host, int.from_bytes(data[end : end + 2]), data[1] == _CONNECT), data[end + 2 :]


def _parse_four(data: bytes) -> tuple[SocksRequest, bytes] | None:
    if data[0] != 4:
        raise NotSocks("a version that there is not")
    end = data.find(b"\0", 8)
    if end < 0:
        return None
    port, address = int.from_bytes(data[2:4]), data[4:8]
    if address[:3] != b"\0\0\0" or not address[3]:
        return SocksRequest(4, str(ipaddress.IPv4Address(address)), port, data[1] == _CONNECT), data[end + 1 :]
    # Version 4a: an invalid address announces a name.
    until = data.find(b"\0", end + 1)
    if until < 0:
        return None
    return SocksRequest(4, _name(data[end + 1 : until]), port, data[1] == _CONNECT), data[until + 1 :]


def _name(name: bytes) -> str:
    try:
        return name.decode("ascii")
    except UnicodeDecodeError:
        raise NotSocks("an invalid name") from None


async def run_socks(session: Session) -> None:
    """Serve a connection that begins with SOCKS."""
    try:
        with anyio.fail_after(HEAD_S):
            asked = await _negotiate(session)
    except (TimeoutError, NotSocks):
        return
    if asked is None:
        return
    if not asked.is_connect:
        await _end(session, asked, Reply.UNSUPPORTED)
        return
    try:
        host = f"[{asked.host}]" if ":" in asked.host else asked.host
        wanted = Asked(*read_authority(f"{host}:{asked.port}", None), "socks")
        is_within = session.is_plain(wanted)
        opened = None if is_within else await session.open(wanted)
    except Refused:
        await _end(session, asked, Reply.REFUSED)
    except (BadRequest, Limited):
        await _end(session, asked, Reply.FAILED)
    except Unreached:
        await _end(session, asked, Reply.UNREACHABLE)
    else:
        greet = partial(session.inside.send, asked.answer(Reply.OK))
        if opened is None:
            await greet()
            await HttpSession(session, (wanted.host, wanted.port)).run()
        else:
            await run_tunnel(session, opened, greet)


async def _negotiate(session: Session) -> SocksRequest | None:
    """Read the request; None when the program left, or insists on authentication. Raises NotSocks."""
    said, greeted = b"", False
    while data := await session.inside.receive():
        said += data
        if not greeted and said[0] == 5:
            greeting = parse_greeting(said)
            if greeting is None:
                continue
            answer, said = greeting
            await session.inside.send(answer)
            if answer == NO_METHOD:
                await session.inside.finish()
                return None
            greeted = True
        if (found := parse_request(said)) is not None:
            asked, rest = found
            session.inside.put_back(rest)
            return asked
    return None


async def _end(session: Session, asked: SocksRequest, reply: Reply) -> None:
    await session.inside.send(asked.answer(reply))
    await session.inside.finish()
