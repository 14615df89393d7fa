"""Creation of sandboxes: the record first, then one from the pool or the engine. A failure leaves nothing behind."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import time
from typing import TYPE_CHECKING

import anyio
from anyio import lowlevel

from warren.core.policy.gpus import choose_gpus
from warren.core.sandboxes.live import LiveSandbox
from warren.core.sandboxes.transitions import build_spec, explained
from warren.domain.errors import Conflict, Error, InvalidRequest
from warren.domain.lifecycle import Status
from warren.domain.records import Sandbox
from warren.domain.values import Limits, Storage, new_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.core.images.cache import ImageCache
    from warren.core.policy.policy import Policy
    from warren.core.sandboxes.connections import AgentConnections
    from warren.core.sandboxes.pool import PooledSandbox, SandboxPool
    from warren.core.sandboxes.transitions import SandboxTransitions
    from warren.core.telemetry.counters import Counters
    from warren.domain.egress import Egress
    from warren.domain.gpus import GpuRequest
    from warren.domain.records import Owner
    from warren.domain.values import Image
    from warren.engines.base import Engine
    from warren.stores.base import Store

_log = logging.getLogger(__name__)

IDEMPOTENCY_S = 86_400.0
"""How long an idempotency key is remembered."""
MAX_ENV = 16_384
"""Characters that fit into one frame to the agent, however they are escaped."""
_OURS = frozenset({"WARREN_SANDBOX", "WARREN_EXECUTION", "WARREN_GPUS"})
"""They mark the processes of a sandbox and of an execution, and name the devices of its GPUs."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NewSandbox:
    """A request for a sandbox. None: the operator's default; a time of 0: for ever."""

    image: str | None = None
    limits: Limits | None = None
    storage: Storage = Storage.PERSISTENT
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    egress: Egress | None = None
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    session_key: str | None = None
    """Unique among the sandboxes of one owner."""
    idle_timeout_s: float | None = None
    max_lifetime_s: float | None = None
    idempotency_key: str | None = None
    use_pool: bool = True
    single_use: bool = False
    """Whether it serves one execution only."""
    gpus: GpuRequest | None = None
    """None: as the image says."""

    def __post_init__(self) -> None:
        check_env(self.env)


def check_env(env: Mapping[str, str]) -> None:
    """Raise InvalidRequest for an environment that no sandbox can have."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidRequest(f"env holds {name[:64]!r}: a name has no = and no NUL in it, and a value no NUL")
        if name in _OURS:
            raise InvalidRequest(f"env holds {name}, which is Warren's own")
    if sum(len(name) + len(value) for name, value in env.items()) > MAX_ENV:
        raise InvalidRequest(f"env holds more than {MAX_ENV} characters: put large values into a file")


@dataclasses.dataclass(eq=False, slots=True, kw_only=True)
class Creation:
    """Makes sandboxes. Two calls with one session key, or one idempotency key, get the same one."""

    engine: Engine
    store: Store
    connections: AgentConnections
    pool: SandboxPool
    images: ImageCache
    transitions: SandboxTransitions
    policy: Policy
    observer: Counters

    async def make(self, owner: Owner, new: NewSandbox) -> tuple[LiveSandbox, bool]:
        """Make a sandbox and return it with True; or return the one that another call made, or makes, with this key.

        A cancelled call leaves nothing behind: each step that was begun is finished, and then undone.
        """
        since = time.monotonic()
        image = await self.images.get(new.image or self.policy.image)
        limits = new.limits or self.policy.limits_of(owner.tenant)
        self.policy.check_limits(owner.tenant, limits)
        egress = self.policy.choose_egress(owner.tenant, new.egress)
        asked = image.gpus if new.gpus is None else new.gpus
        gpus = await choose_gpus(self.engine, self.store, self.policy, owner, asked)
        with self.pool.creating():
            from_pool = new.use_pool and not gpus
            pooled = await self.pool.acquire(image, new.storage, limits) if from_pool else None
            record = self._build_record(owner, new, image, limits, pooled)
            live = LiveSandbox(dataclasses.replace(record, egress=egress, gpus=gpus))
            async with live.lock:
                with anyio.CancelScope(shield=True):
                    other = await self._write_down(live, new, pooled)
                    if other is not None:
                        return other, False
                    await self._bring_to_life(live, new, image, pooled)
                await self._undo_if_cancelled(live, new)
        self.observer.sandbox_created("engine" if pooled is None else "pool", time.monotonic() - since)
        return live, True

    async def _write_down(self, live: LiveSandbox, new: NewSandbox, pooled: PooledSandbox | None) -> LiveSandbox | None:
        """Store the record, or return the sandbox of the call that was first."""
        # Before its id is in the store: a call that finds it there waits for this lock.
        self.transitions.live_sandboxes[live.id] = live
        try:
            other = await self._tie(live.sandbox, new) or await self._add(live.sandbox, new)
        except Error:
            self._give_back(live, pooled)
            raise
        except BaseException:
            # WHY: a task's own `cancel()` goes through every shield, so the record may or may not be stored.
            await self._undo(live, new)
            await self.engine.destroy(live.handle)
            raise
        if other is not None:
            self._give_back(live, pooled)
        return other

    def _give_back(self, live: LiveSandbox, pooled: PooledSandbox | None) -> None:
        self.transitions.forget(live)
        if pooled is not None:
            self.pool.release(pooled)

    async def _tie(self, sandbox: Sandbox, new: NewSandbox) -> LiveSandbox | None:
        """Tie the idempotency key to this sandbox, or return the one that it is tied to."""
        if new.idempotency_key is None:
            return None
        key, fingerprint = new.idempotency_key, _fingerprint(new)
        while True:
            tied = await self.store.remember(sandbox.owner, key, fingerprint, sandbox.id, ttl_s=IDEMPOTENCY_S)
            if tied == sandbox.id:
                return None
            other = await self.transitions.find(tied)
            if other is not None:
                return other
            # A crash interrupted its creation, or it was deleted since: make a new one.
            await self.store.forget(sandbox.owner, key, tied)

    async def _add(self, sandbox: Sandbox, new: NewSandbox) -> LiveSandbox | None:
        """Store the record if no quota forbids it; or return the sandbox that has the session key."""
        try:
            while True:
                try:
                    await self.store.add(sandbox, self.policy.ceilings_of(sandbox.owner.tenant))
                except Conflict:
                    if sandbox.session_key is None:
                        raise
                    other = await self._find_session(sandbox)
                    if other is None:
                        continue
                    await self._untie(sandbox, new)
                    return other
                return None
        except Error:
            await self._untie(sandbox, new)
            raise

    async def _find_session(self, sandbox: Sandbox) -> LiveSandbox | None:
        found = await self.store.find(sandbox.owner, sandbox.session_key or "")
        return None if found is None else await self.transitions.find(found.id)

    async def _bring_to_life(
        self, live: LiveSandbox, new: NewSandbox, image: Image, pooled: PooledSandbox | None
    ) -> None:
        sandbox = live.sandbox
        try:
            if pooled is not None and await self.pool.fit(pooled, sandbox.limits, sandbox.env):
                live.agent = pooled.agent
            else:
                if pooled is not None:
                    await self.connections.drop(live.id)
                    await self.engine.destroy(live.handle)
                with explained():
                    # Connected on first use: until then it is one process instead of three.
                    spec = build_spec(self.engine, self.store, sandbox, image, single_use=new.single_use)
                    await self.engine.create(spec)
            if sandbox.status is Status.CREATING:
                await self.transitions.become(live, Status.RUNNING)
        except BaseException:
            await self._undo(live, new)
            raise

    async def _undo_if_cancelled(self, live: LiveSandbox, new: NewSandbox) -> None:
        try:
            await lowlevel.checkpoint_if_cancelled()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._undo(live, new)
            raise

    async def _undo(self, live: LiveSandbox, new: NewSandbox) -> None:
        """Remove a half-made sandbox. If that fails its record stays `destroying`, and the reaper tries again."""
        try:
            await self._untie(live.sandbox, new)
            await self.transitions.destroy(live)
        except Error:
            _log.warning("sandbox.remove_failed", extra={"sandbox_id": live.id}, exc_info=True)

    async def _untie(self, sandbox: Sandbox, new: NewSandbox) -> None:
        if new.idempotency_key is not None:
            await self.store.forget(sandbox.owner, new.idempotency_key, sandbox.id)

    def _build_record(
        self, owner: Owner, new: NewSandbox, image: Image, limits: Limits, pooled: PooledSandbox | None
    ) -> Sandbox:
        now = time.time()
        # A pooled sandbox that suits runs already: its record is written once.
        is_ready = pooled is not None and pooled.suits(limits, new.env)
        return Sandbox(
            id=new_id("sbx") if pooled is None else pooled.handle.sandbox_id,
            owner=owner,
            status=Status.RUNNING if is_ready else Status.CREATING,
            engine=self.engine.name,
            reach=self.engine.reach,
            image=image.name,
            image_digest=image.digest,
            limits=limits,
            storage=new.storage,
            env=dict(new.env),
            metadata=dict(new.metadata),
            session_key=new.session_key,
            idle_timeout_s=choose_time(new.idle_timeout_s, self.policy.idle_timeout_s),
            max_lifetime_s=choose_time(new.max_lifetime_s, self.policy.max_lifetime_s),
            created_at=now,
            active_at=now,
            changed_at=now,
        )


def choose_time(asked: float | None, otherwise: float | None) -> float | None:
    """Return the requested time, where 0 is for ever, or the default."""
    return otherwise if asked is None else asked or None


def _fingerprint(new: NewSandbox) -> str:
    """Hash a request, to tell different ones with the same key apart."""
    asked = dataclasses.asdict(dataclasses.replace(new, idempotency_key=None))
    if new.egress is None:
        # Left out, so that keys from before egress existed still match.
        del asked["egress"]
    if new.gpus is None:
        del asked["gpus"]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
