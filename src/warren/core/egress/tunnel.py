"""Tunnels: bytes both ways between a program and somebody outside, once it is sure to whom it speaks.

1. Where a name is why a connection is allowed, TLS over it must be for that name, in the clear: another name, none, or
   an encrypted one would reach whatever else is behind the same address.
2. A server may ask for a second ClientHello. Until it is known whether it did, nothing after the first is passed on.
3. On port 443 there is nothing but TLS. On a port that a rule names there may be anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from warren.core.egress import tls_hello as tls
from warren.domain.egress import Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from warren.core.egress.dialer import Outside
    from warren.core.egress.session import Inside, Opened, Session

HELLO_S = 30.0
TLS_PORT = 443


class _Unsaid(Exception):
    """What a program said over a tunnel is not for whom it asked."""

    def __init__(self, why: str, name: str | None) -> None:
        super().__init__(why)
        self.name = name


async def run_tunnel(session: Session, opened: Opened, greet: Callable[[], Awaitable[None]]) -> None:
    """Tell the program, and pass everything both ways until both have ended; then it is closed, and written down."""
    traffic = session.around.traffic
    try:
        await greet()
        await _Tunnel(session.inside, opened, is_checked=opened.verdict.is_by_name).run()
    except _Unsaid as unsaid:
        verdict = Verdict(allowed=False, rule="server name", why=str(unsaid))
        session.refuse_late(opened, verdict, unsaid.name)
        with anyio.CancelScope(shield=True):
            await opened.outside.aclose()
        await session.inside.send(tls.ACCESS_DENIED)
        await session.inside.finish()
        return
    except OSError:
        opened.connection.fail("broken")
    except BaseException:
        opened.connection.fail("abandoned")
        raise
    finally:
        if opened.connection.outcome != "refused":
            with anyio.CancelScope(shield=True):
                await opened.aclose(traffic)


async def run_switched(inside: Inside, opened: Opened) -> None:
    """Pass everything both ways on a connection that became a WebSocket; whoever opened it closes it."""
    try:
        await _Tunnel(inside, opened, is_checked=False).run()
    except OSError:
        opened.connection.fail("broken")


class _Tunnel:
    """Two directions, the first bytes of which may have to be looked at."""

    def __init__(self, inside: Inside, opened: Opened, *, is_checked: bool) -> None:
        self._inside = inside
        self._outside: Outside = opened.outside
        self._connection = opened.connection
        self._is_checked = is_checked
        self._server_start = bytearray()
        self._has_server_begun = anyio.Event()
        self._failure: _Unsaid | OSError | None = None

    async def run(self) -> None:
        """Pass bytes until both directions ended, or one failed. Raises OSError and _Unsaid."""
        async with anyio.create_task_group() as tasks:

            async def guarded(direction: Callable[[], Awaitable[None]]) -> None:
                try:
                    await direction()
                except (_Unsaid, OSError) as error:
                    self._failure = self._failure or error
                    tasks.cancel_scope.cancel()

            tasks.start_soon(guarded, self._down)
            tasks.start_soon(guarded, self._up)
        if self._failure is not None:
            raise self._failure

    async def _up(self) -> None:
        if self._is_checked and await self._pass_hello():
            await self._has_server_begun.wait()
            if tls.asks_again(bytes(self._server_start)):
                await self._pass_hello(is_second=True)
        while data := await self._inside.receive():
            await self._send(data)
        await self._outside.send_eof()

    async def _down(self) -> None:
        while data := await self._outside.receive():
            self._connection.count(received=len(data))
            await self._inside.send(data)
            if self._inside.is_over:
                raise BrokenPipeError
            if not self._has_server_begun.is_set():
                self._server_start += data[: tls.SERVER_START]
                if len(self._server_start) >= tls.SERVER_START:
                    self._has_server_begun.set()
        self._has_server_begun.set()
        self._inside.send_eof()

    async def _send(self, data: bytes) -> None:
        self._connection.count(sent=len(data))
        await self._outside.send(data)

    async def _pass_hello(self, *, is_second: bool = False) -> bool:
        """Look at what the program says first, and pass it on; False when that is not TLS. Raises _Unsaid."""
        is_strict = is_second or self._connection.asked.port == TLS_PORT
        said = bytearray()
        with anyio.move_on_after(HELLO_S if is_strict else None):
            while True:
                data = await self._inside.receive()
                said += data
                start = tls.skip_change(bytes(said)) if is_second else bytes(said)
                if not is_strict and not tls.may_be_tls(start):
                    await self._send(bytes(said))
                    return False
                if self._check_hello(start):
                    break
                if not data:
                    raise _Unsaid(self._words("the connection ended before it said so"), None)
            # Only the hello: what follows waits until it is known whether the server wants another.
            end = len(said) - len(start) + tls.hello_size(start)
            self._inside.put_back(bytes(said[end:]))
            await self._send(bytes(said[:end]))
            return True
        raise _Unsaid(self._words(f"it said nothing for {HELLO_S:g} s"), None)

    def _check_hello(self, said: bytes) -> bool:
        """Say whether a whole ClientHello is there. Raises _Unsaid when it is not for whom the program asked."""
        try:
            hello = tls.parse_hello(said)
        except tls.NotTls:
            raise _Unsaid(self._words("it is no TLS"), None) from None
        if hello is None:
            return False
        if hello.is_encrypted:
            raise _Unsaid(self._words("the server's name in it is encrypted"), hello.name)
        if hello.name != self._connection.asked.host:
            raise _Unsaid(self._words("it is for another server" if hello.name else "it names no server"), hello.name)
        return True

    def _words(self, what: str) -> str:
        asked = self._connection.asked
        return (
            f"the connection to {asked.host}:{asked.port} was ended: under the rules of this sandbox's egress it must "
            f"be TLS for {asked.host}, and {what}."
        )
