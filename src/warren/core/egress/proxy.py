"""Egress proxy: the only network of a sandbox. Its programs connect to port 3128 of their loopback.

1. A sandbox has no network. The service resolves names and connects, within the policy of the sandbox.
2. HTTP, CONNECT and SOCKS share the port; the first byte tells them apart. All input is hostile.
3. Open connections are decided again when a policy changes and every 2 s, so that expired grants end them.
4. A failure ends its own connection and nothing else of the agent's link.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from warren.core.concurrency.fair_queue import OwnerLimiter
from warren.core.egress.http import HEAD_S, HttpSession
from warren.core.egress.record import EgressJournal, EgressRecord
from warren.core.egress.resolver import SystemResolver
from warren.core.egress.session import Session, Surroundings
from warren.core.egress.socks import run_socks
from warren.core.egress.traffic import Traffic
from warren.core.egress.upstream import LOOK_S, parse_upstream
from warren.domain.egress import PROXY_PORT
from warren.domain.errors import Error, Overloaded, QuotaExceeded

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient, TunnelStream
    from warren.core.audit.log import Audit
    from warren.core.egress.internal_hosts import InnerHost
    from warren.core.egress.policy_table import EgressPolicies
    from warren.core.policy.policy import Policy
    from warren.core.telemetry.counters import Counters
    from warren.engines.base import Engine
    from warren.stores.base import Store

LISTENER = "egress"
WINDOW = 1 << 20
"""Bytes from a server that the program has not read yet; they are in the memory of its sandbox."""
HELD = 256 << 10
"""Bytes of a program that the server has not taken yet: the memory that a connection costs the service."""
FIRST = 16 << 10
"""Bytes of a program while it waits for a slot."""
TICK_S = 2.0
_WAITING, _WAIT_S = 1024, 15.0

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nX-Warren-Egress: limited\r\n"
    b"Retry-After: 1\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n"
)

_log = logging.getLogger(__name__)


class EgressProxy:
    """Serves the egress of all sandboxes. `run` is a task of the service; `attach` serves one agent connection."""

    def __init__(
        self,
        policies: EgressPolicies,
        audit: Audit,
        observer: Counters,
        policy: Policy,
        engine: Engine,
        *,
        journal_path: str,
    ) -> None:
        self.inner: dict[str, InnerHost] = {}
        """Internal hosts, by name."""
        self._policies = policies
        self._engine = engine
        limits = policy.egress_limits
        self._record = EgressRecord(audit, EgressJournal(journal_path))
        self._traffic = Traffic(self._record, observer, limits)
        upstream = parse_upstream(policy.egress_upstream)
        resolve = SystemResolver(observer) if upstream is None else SystemResolver(observer, LOOK_S)
        self.around = Surroundings(
            policies=policies,
            traffic=self._traffic,
            audit=audit,
            resolve=resolve,
            # WHY a resolver of its own: lookups of sandboxes may take all threads of the other.
            find_upstream=SystemResolver(observer),
            inner=self.inner,
            upstream=upstream,
            ca_file=policy.egress_ca_file,
        )
        policies.has_upstream = upstream is not None
        self._limiter = OwnerLimiter(
            observer,
            "connections to the outside",
            what_own="connections of this sandbox to the outside",
            own=limits.connections,
            everybody=limits.everybody,
            waiting=_WAITING,
            wait_s=_WAIT_S,
        )
        policies.on_change.append(self.look_again)

    async def load(self, store: Store) -> None:
        """Audit the connections that a killed service left open. Raises StoreError."""
        await self._record.recover(store)

    async def attach(self, sandbox_id: str, agent: AgentClient) -> None:
        """Serve the programs of a sandbox whose agent has just connected."""
        if not self._engine.has_own_network:
            # Programs on this engine use the network of the host: no traffic comes here, and no rule could hold.
            return

        async def serve(tunnel: TunnelStream) -> None:
            await self._serve(sandbox_id, tunnel)

        agent.on_tunnel[LISTENER] = serve
        agent.tell("tunnel.listen", {"port": PROXY_PORT, "listener": LISTENER, "window": WINDOW, "first": FIRST})

    async def run(self) -> None:
        """Record traffic, and end connections that are no longer allowed, until the service stops."""
        try:
            while True:
                await anyio.sleep(TICK_S)
                for sandbox_id in list(self._traffic.live):
                    self.look_again(sandbox_id)
                self._traffic.collect()
        finally:
            self._traffic.collect(now=True)

    def look_again(self, sandbox_id: str) -> None:
        """End the connections of a sandbox that its policy no longer allows."""
        for connection in list(self._traffic.live.get(sandbox_id, ())):
            asked = connection.asked
            if connection.addresses is None and asked.host not in self.inner:
                continue  # Not connected yet: the decision follows then.
            verdict = self._policies.decide(
                sandbox_id, asked.host, asked.port, method=asked.method, addresses=connection.addresses
            )
            if not verdict.allowed:
                connection.cut("cut", verdict.why)

    async def _serve(self, sandbox_id: str, tunnel: TunnelStream) -> None:
        """Serve one connection of a program. Must not raise."""
        _, owner = self._policies.current(sandbox_id)
        if not owner.tenant:
            return
        session = Session(self.around, sandbox_id, owner, tunnel)
        try:
            with session.scope:
                try:
                    async with self._limiter.one(owner, sandbox_id):
                        tunnel.widen(HELD)
                        await _converse(session)
                except (Overloaded, QuotaExceeded) as error:
                    self._policies.note_failed(sandbox_id, f"{error}.")
                    sentence = str(error).encode()
                    await session.inside.send(_BUSY % (len(sentence) + 1, sentence))
                    await session.inside.finish()
        except Error:
            pass  # The sandbox or its agent connection is gone.
        except Exception as error:  # noqa: BLE001 - as above
            _log.error("egress.failed", extra={"sandbox_id": sandbox_id, "error": type(error).__name__}, exc_info=True)


async def _converse(session: Session) -> None:
    start = b""
    with anyio.move_on_after(HEAD_S):
        start = await session.inside.receive()
        session.inside.put_back(start)
    is_socks = start[:1] in {b"\x04", b"\x05"}
    if start:
        await (run_socks(session) if is_socks else HttpSession(session).run())
