"""Tunnels: bytes in both directions between a program and a server, after a check of the server's name.

1. Where a rule allows a connection by name, the TLS in it must name that host in the clear: another name, none, or an
   encrypted one could reach other servers at the same address.
2. A server may ask for a second ClientHello. Until its reply shows whether it does, nothing after the first is sent.
3. Port 443 carries TLS only. A port that a rule names may carry anything.
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
    """The first bytes in a tunnel are not TLS for the requested host."""

    def __init__(self, why: str, name: str | None) -> None:
        super().__init__(why)
        self.name = name


async def run_tunnel(session: Session, opened: Opened, greet: Callable[[], Awaitable[None]]) -> None:
    """Confirm the tunnel to the program, forward bytes until both sides end, then close and record the connection."""
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
    """Forward bytes on a connection that became a WebSocket; its owner closes it."""
    try:
        await _Tunnel(inside, opened, is_checked=False).run()
    except OSError:
        opened.connection.fail("broken")


class _Tunnel:
    """Both directions of a tunnel. The first bytes may have to be checked."""

    def __init__(self, inside: Inside, opened: Opened, *, is_checked: bool) -> None:
        self._inside = inside
        self._outside: Outside = opened.outside
        self._connection = opened.connection
        self._is_checked = is_checked
        self._server_start = bytearray()
        self._has_server_begun = anyio.Event()
        self._failure: _Unsaid | OSError | None = None

    async def run(self) -> None:
        """Forward bytes until both directions end or one fails. Raises OSError and _Unsaid."""
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
        """Check the first bytes of the program and forward them; False when they are not TLS. Raises _Unsaid."""
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
            # Forward the ClientHello only: the rest waits until the server accepts it or asks for another.
            end = len(said) - len(start) + tls.hello_size(start)
            self._inside.put_back(bytes(said[end:]))
            await self._send(bytes(said[:end]))
            return True
        raise _Unsaid(self._words(f"it said nothing for {HELLO_S:g} s"), None)

    def _check_hello(self, said: bytes) -> bool:
        """Whether a complete ClientHello has arrived. Raises _Unsaid when it is not for the requested host."""
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
