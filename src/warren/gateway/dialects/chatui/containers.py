"""ChatUI's containers: the sandbox of each, its lock, and counts of its programs."""

from __future__ import annotations

import contextlib
import re
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from warren.core.concurrency.keyed_lock import KeyedLock
from warren.core.telemetry.counters import Outcomes
from warren.domain.errors import NotFound
from warren.domain.records import SandboxQuery
from warren.gateway.dialects.details import Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable

    from warren.core.service import Service
    from warren.domain.records import Owner, Sandbox
    from warren.gateway.api.operations import Call

DIALECT = {"dialect": "chatui"}
"""The label of this dialect's sandboxes."""
_ID = re.compile(r"[0-9a-f]{64}")
_REMEMBERED = 10_000
_MISSING = "Container session not found, or it was shut down due to inactivity."
_EXPIRED = "Container session expired after reaching its maximum lifetime."


class Containers:
    """State of containers besides their sandboxes: in memory, and lost with the service."""

    def __init__(self) -> None:
        self.ended = Outcomes("gateway_executions", "gateway_execution_duration_seconds", CollectorRegistry())
        self.active = 0
        self.creating = 0
        self._lock = KeyedLock()
        self._ends: OrderedDict[str, float] = OrderedDict()
        """When containers end, so that it can be said of one that is gone."""

    def remember(self, container_id: str, sandbox: Sandbox) -> None:
        """Remember when a container ends."""
        if sandbox.expires_at is not None:
            self._ends[container_id] = sandbox.expires_at
            if len(self._ends) > _REMEMBERED:
                self._ends.popitem(last=False)

    def missing(self, container_id: str) -> Refused:
        """Build the refusal for a missing container, with the reason where it is known."""
        end = self._ends.get(container_id)
        return Refused(404, _MISSING if end is None or time.time() < end else _EXPIRED)

    def forget(self, container_id: str) -> None:
        """Forget one that was removed before its end."""
        self._ends.pop(container_id, None)

    @contextlib.asynccontextmanager
    async def turn(self, key: Hashable, wait_s: float, refused: Refused) -> AsyncIterator[None]:
        """Hold the lock of a key; a caller that waits longer than `wait_s` is refused."""
        async with contextlib.AsyncExitStack() as held:
            try:
                await held.enter_async_context(self._lock.hold(key, wait_s))
            except TimeoutError:
                raise refused from None
            yield

    @contextlib.contextmanager
    def running(self) -> Any:
        """Count something that runs."""
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1

    def count(self, outcome: str, seconds: float) -> None:
        """Count something that ran."""
        self.ended.count(outcome, seconds)


def containers_of(service: Service) -> Containers:
    """Return the containers of a service."""
    return service.beside(Containers)


def session_key(container_id: str) -> str:
    """Return the session key of a container's sandbox."""
    return f"chatui/{container_id}"


def check_id(call: Call, container_id: str) -> str:
    """Return a well-formed container id. Raises Refused."""
    if _ID.fullmatch(container_id) is None:
        raise containers_of(call.service).missing(container_id)
    return container_id


async def find(call: Call, container_id: str) -> Sandbox:
    """Find the sandbox of a container of the caller's. Raises Refused."""
    service, known = call.service, containers_of(call.service)
    check_id(call, container_id)
    try:
        sandbox = await service.sandboxes.find(call.caller, session_key(container_id))
    except NotFound:
        raise await _explain(call, container_id) from None
    if sandbox.expires_at is not None and sandbox.expires_at <= time.time():
        known.remember(container_id, sandbox)
        with contextlib.suppress(NotFound):
            await service.sandboxes.delete(call.caller, sandbox.id)
        raise known.missing(container_id)
    return sandbox


async def _explain(call: Call, container_id: str) -> Refused:
    """Explain why a caller has no such container: it is gone, or belongs to another."""
    query = SandboxQuery(session_key=session_key(container_id), limit=1)
    for other in (await call.service.store.list(query)).items:
        whose = "tenant" if other.owner.tenant != call.caller.principal.tenant else "principal"
        return Refused(403, f"Container session belongs to another {whose}")
    return containers_of(call.service).missing(container_id)


async def count_containers(service: Service, owner: Owner | None) -> int:
    """Count the containers of an owner, or of everybody."""
    return (await service.store.list(SandboxQuery(owner=owner, metadata=DIALECT, limit=1))).total
