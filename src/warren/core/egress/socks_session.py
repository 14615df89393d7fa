"""SOCKS session of the egress proxy, from the greeting to the tunnel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio

from warren.core.egress import socks
from warren.core.egress.connection import Asked
from warren.core.egress.dialer import Unreached
from warren.core.egress.http import HEAD_S, HttpSession
from warren.core.egress.message import BadRequest, read_authority
from warren.core.egress.session import Limited, Refused
from warren.core.egress.tunnel import run_tunnel

if TYPE_CHECKING:
    from warren.core.egress.session import Session


async def run_socks(session: Session) -> None:
    """Serve a connection that begins with SOCKS."""
    try:
        with anyio.fail_after(HEAD_S):
            asked = await _negotiate(session)
    except (TimeoutError, socks.NotSocks):
        return
    if asked is None:
        return
    if not asked.is_connect:
        await _end(session, asked, socks.Reply.UNSUPPORTED)
        return
    try:
        host = f"[{asked.host}]" if ":" in asked.host else asked.host
        wanted = Asked(*read_authority(f"{host}:{asked.port}", None), "socks")
        is_within = session.is_plain(wanted)
        opened = None if is_within else await session.open(wanted)
    except Refused:
        await _end(session, asked, socks.Reply.REFUSED)
    except (BadRequest, Limited):
        await _end(session, asked, socks.Reply.FAILED)
    except Unreached:
        await _end(session, asked, socks.Reply.UNREACHABLE)
    else:
        greet = partial(session.inside.send, asked.answer(socks.Reply.OK))
        if opened is None:
            await greet()
            await HttpSession(session, (wanted.host, wanted.port)).run()
        else:
            await run_tunnel(session, opened, greet)


async def _negotiate(session: Session) -> socks.Asked | None:
    """Read the request; None when the program left, or insists on authentication. Raises NotSocks."""
    said, greeted = b"", False
    while data := await session.inside.receive():
        said += data
        if not greeted and said[0] == 5:
            greeting = socks.parse_greeting(said)
            if greeting is None:
                continue
            answer, said = greeting
            await session.inside.send(answer)
            if answer == socks.NO_METHOD:
                await session.inside.finish()
                return None
            greeted = True
        if (found := socks.parse_request(said)) is not None:
            asked, rest = found
            session.inside.put_back(rest)
            return asked
    return None


async def _end(session: Session, asked: socks.Asked, reply: socks.Reply) -> None:
    await session.inside.send(asked.answer(reply))
    await session.inside.finish()
