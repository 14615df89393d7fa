"""One connection of a program to the egress proxy, and the connections that it opens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from warren.core.egress.dialer import Unreached, connect
from warren.core.egress.resolver import Crowded
from warren.core.egress.upstream import connect_through
from warren.core.policy.egress_hosts import parse_host
from warren.domain.egress import PACKAGES_HOST, Verdict
from warren.domain.errors import Error, StoreError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from warren.core.agent.client import TunnelStream
    from warren.core.audit.log import Audit
    from warren.core.egress.connection import Asked, EgressConnection
    from warren.core.egress.dialer import Outside
    from warren.core.egress.internal_hosts import InnerHost
    from warren.core.egress.policy_table import EgressPolicies
    from warren.core.egress.resolver import Resolve
    from warren.core.egress.traffic import Traffic
    from warren.core.egress.upstream import Upstream
    from warren.domain.records import Owner

PLAIN_PORT = 80
LINGER_S = 10.0
_LINGER_BYTES = 1 << 20


class Refused(Exception):
    """The policy refuses the connection."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.why)
        self.verdict = verdict


class Limited(Exception):
    """The connection exceeds a limit now; the sentence is for the program."""


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """The shared state of all sessions."""

    policies: EgressPolicies
    traffic: Traffic
    audit: Audit
    resolve: Resolve
    find_upstream: Resolve
    """Resolves the address of the upstream proxy."""
    inner: Mapping[str, InnerHost]
    """Internal hosts, by name."""
    upstream: Upstream | None = None
    ca_file: str = ""
    trust: ssl.SSLContext | None = None
    """TLS context for brokered secrets; built at first use."""


class Inside:
    """The side of the program: bytes that were read ahead can be put back."""

    def __init__(self, tunnel: TunnelStream, scope: anyio.CancelScope) -> None:
        self._tunnel = tunnel
        self._scope = scope
        self._early = b""

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" at the end. A broken connection ends everything that the session opened."""
        if self._early:
            data, self._early = self._early, b""
            return data
        try:
            return await self._tunnel.receive()
        except Error:
            self._scope.cancel()
            return b""

    @property
    def is_over(self) -> bool:
        """Whether the program is gone."""
        return self._tunnel.is_over

    def put_back(self, data: bytes) -> None:
        """Return these bytes from `receive` first."""
        self._early = data + self._early

    async def send(self, data: bytes | bytearray) -> None:
        """Send all data; once the program is gone, it is dropped."""
        await self._tunnel.send(bytes(data) if isinstance(data, bytearray) else data)

    def send_eof(self) -> None:
        """Half-close the connection."""
        self._tunnel.send_eof()

    async def finish(self) -> None:
        """Half-close, and wait until the program has read the response: an immediate close would drop it."""
        self._tunnel.send_eof()
        left = _LINGER_BYTES
        with anyio.move_on_after(LINGER_S):
            while left > 0 and (data := await self.receive()):
                left -= len(data)


@dataclass(eq=False, slots=True)
class Opened:
    """An open destination: its record, and its connection unless the host is internal."""

    connection: EgressConnection
    verdict: Verdict
    _outside: Outside | None

    @property
    def outside(self) -> Outside:
        """The connection to the server."""
        assert self._outside is not None
        return self._outside

    async def aclose(self, traffic: Traffic) -> None:
        """Close the connection and record its end."""
        if self._outside is not None:
            await self._outside.aclose()
        traffic.end(self.connection)


class Session:
    """Opens the connections that one program asks for, within the policy of its sandbox."""

    def __init__(self, around: Surroundings, sandbox_id: str, owner: Owner, tunnel: TunnelStream) -> None:
        self.around = around
        self.sandbox_id = sandbox_id
        self.owner = owner
        self.scope = anyio.CancelScope()
        """The whole session: cutting one of its connections ends it."""
        self.inside = Inside(tunnel, self.scope)

    async def open(self, asked: Asked, *, tls: ssl.SSLContext | None = None) -> Opened:
        """Connect to a destination, and record the outcome. Raises Refused, Limited and Unreached."""
        traffic = self.around.traffic
        self._check_bounds()
        connection = traffic.begin(self.sandbox_id, self.owner, asked, self.scope)
        try:
            verdict = self.decide(asked)
            connection.rule = verdict.rule
            if asked.host in self.around.inner:
                self._check_plain(asked)
                traffic.record.hold(connection)
                return Opened(connection, verdict, None)
            addresses = await self._look_up(asked)
            verdict = self.decide(asked, addresses)
            connection.rule = verdict.rule
            if self.around.upstream is not None:
                connection.via, connection.address = "upstream_proxy", (*verdict.addresses, "")[0]
            traffic.record.hold(connection)
            outside = await self._reach(asked, addresses, verdict, tls)
        except Refused as refused:
            self.around.policies.note_refused(self.sandbox_id, refused.verdict)
            traffic.refuse(connection, refused.verdict)
            raise
        except Unreached as error:
            self.around.policies.note_failed(self.sandbox_id, str(error))
            connection.fail("timeout" if error.is_late else "unreachable")
            traffic.end(connection)
            raise
        except StoreError as error:
            connection.fail("unrecorded")
            traffic.end(connection)
            raise self._limit(str(error)) from error
        except BaseException:
            connection.fail("abandoned")
            traffic.end(connection)
            raise
        connection.address = outside.address or connection.address
        traffic.record.renew(connection)
        return Opened(connection, verdict, outside)

    def is_plain(self, asked: Asked) -> bool:
        """Whether the HTTP inside a tunnel is parsed, request by request."""
        if asked.port != PLAIN_PORT:
            return False
        if asked.host in self.around.inner or self.around.policies.secrets_for(self.sandbox_id, asked.host):
            return True
        verdict = self.around.policies.decide(self.sandbox_id, asked.host, asked.port)
        return verdict.allowed and verdict.is_by_name

    def refuse_late(self, opened: Opened, verdict: Verdict, server_name: str | None) -> None:
        """Record the refusal of an open connection whose first bytes were wrong; none of them was forwarded."""
        opened.connection.server_name = server_name
        self.around.policies.note_refused(self.sandbox_id, verdict)
        self.around.traffic.refuse(opened.connection, verdict)

    def _check_bounds(self) -> None:
        try:
            self.around.audit.check_writable()
        except StoreError as error:
            raise self._limit(str(error)) from error
        if not self.around.traffic.may_begin(self.sandbox_id):
            most = self.around.traffic.limits.per_minute
            raise self._limit(
                f"this sandbox makes more than {most} connections a minute: wait a moment (egress.per_minute)."
            )

    def _limit(self, why: str) -> Limited:
        self.around.policies.note_failed(self.sandbox_id, why)
        return Limited(why)

    def decide(self, asked: Asked, addresses: tuple[str, ...] | None = None) -> Verdict:
        """Decide about a destination, before its name is resolved or after. Raises Refused."""
        verdict = self.around.policies.decide(
            self.sandbox_id, asked.host, asked.port, method=asked.method, addresses=addresses
        )
        if not verdict.allowed:
            raise Refused(verdict)
        if asked.host == PACKAGES_HOST and asked.host not in self.around.inner:
            raise Refused(Verdict(allowed=False, rule="no index", why="this service has no package index."))
        return verdict

    def _check_plain(self, asked: Asked) -> None:
        if asked.kind != "http":
            why = f"{asked.host} is answered by the service itself: call it with http://, on port 80."
            raise Refused(Verdict(allowed=False, rule="inner host", why=why))

    async def _look_up(self, asked: Asked) -> tuple[str, ...]:
        host = parse_host(asked.host)
        if host.address is not None:
            return (str(host.address),)
        if self.around.upstream is None:
            return await self.around.resolve(self.owner, host.text)
        # The addresses that this host resolves count; without any, the name does.
        try:
            return await self.around.resolve(self.owner, host.text)
        except Crowded:
            raise
        except Unreached:
            return ()

    async def _reach(
        self, asked: Asked, addresses: tuple[str, ...], verdict: Verdict, tls: ssl.SSLContext | None
    ) -> Outside:
        """Connect, and decide again: the policy may have changed meanwhile. Raises Refused and Unreached."""
        outside = await self._connect(asked, verdict, tls)
        try:
            self.decide(asked, addresses)
        except Refused:
            await outside.aclose()
            raise
        return outside

    async def _connect(self, asked: Asked, verdict: Verdict, tls: ssl.SSLContext | None) -> Outside:
        upstream = self.around.upstream
        if upstream is None:
            return await connect(asked.host, verdict.addresses, asked.port, tls)
        literal = parse_host(upstream.host).address
        try:
            where = (str(literal),) if literal else await self.around.find_upstream(self.owner, upstream.host)
        except Unreached as error:
            # Not the original message: it names the proxy, which programs must not learn.
            why = "the operator's proxy (egress.upstream_proxy) cannot be looked up"
            raise Unreached(f"{asked.host}:{asked.port} cannot be reached: {why}.", is_late=error.is_late) from None
        return await connect_through(upstream, where, asked.host, asked.port, tls)

    def may_still(self, asked: Asked, connection: EgressConnection) -> bool:
        """Decide about the next request on a kept connection."""
        verdict = self.around.policies.decide(
            self.sandbox_id, asked.host, asked.port, method=asked.method, addresses=connection.addresses
        )
        connection.asked = asked
        return verdict.allowed
