"""Reaper: stops idle sandboxes, destroys expired and forgotten ones, and finishes interrupted steps."""

from __future__ import annotations

import contextlib
import enum
import logging
import time
from typing import TYPE_CHECKING

import anyio

from warren.domain.errors import StoreError
from warren.domain.lifecycle import Status
from warren.domain.values import Storage

if TYPE_CHECKING:
    from warren.core.audit.log import Audit
    from warren.core.policy.policy import Policy
    from warren.core.sandboxes.live import LiveSandbox
    from warren.core.sandboxes.transitions import SandboxTransitions
    from warren.stores.base import Store

TICK_S = 1.0
TOUCH_S = 15.0
"""How far the store may be behind the last use of a sandbox; executions update it themselves."""
_AT_ONCE = 8
_BACK_OFF_S = 30.0
_UNFINISHED = frozenset({Status.CREATING, Status.STARTING, Status.STOPPING, Status.DESTROYING})

_log = logging.getLogger(__name__)


class Fate(enum.StrEnum):
    """Why the reaper acts on a sandbox."""

    UNFINISHED = "unfinished"
    """A transition failed half-way, and no task works on it now."""
    IDLE = "idle"
    EXPIRED = "expired"
    """It has reached its maximum lifetime, used or not."""
    FORGOTTEN = "forgotten"
    """It has been stopped for longer than the policy keeps it."""


class Reaper:
    """Checks every live sandbox once a second: a thousand take about a millisecond.

    Idleness is measured by the monotonic clock, ages by the time of day, for they outlive this process.
    """

    def __init__(self, transitions: SandboxTransitions, store: Store, audit: Audit, policy: Policy) -> None:
        self._transitions = transitions
        self._store = store
        self._audit = audit
        self._policy = policy
        self._at_once = anyio.Semaphore(_AT_ONCE)
        self._reaping: set[str] = set()
        self._not_before: dict[str, float] = {}
        """When to retry after a failure, by sandbox id."""
        self._unwritten: set[str] = set()
        """Sandboxes to retry once the store is writable again."""

    async def run(self) -> None:
        """Tick once a second until cancelled. A slow tick does not delay the next."""
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.sleep(TICK_S)
                tasks.start_soon(self.tick)

    async def tick(self) -> None:
        """Do everything that is due now."""
        await self._check_store()
        now, today = time.monotonic(), time.time()
        live_sandboxes = tuple(self._transitions.live_sandboxes.values())
        due = [
            live for live in live_sandboxes if self._is_free(live, now) and self._judge(live, now, today) is not None
        ]
        used = [live for live in live_sandboxes if (now if live.is_busy else live.used_at) - live.touched_at >= TOUCH_S]
        self._not_before = {each: when for each, when in self._not_before.items() if when > now}
        if not due and not used:
            return
        self._reaping.update(live.id for live in due)
        async with anyio.create_task_group() as tasks:
            for live in due:
                tasks.start_soon(self._reap, live)
            for live in used:
                tasks.start_soon(self._touch, live)

    async def _check_store(self) -> None:
        """Retry failed writes as soon as the store is writable: a full disk must not leave stale rows for long."""
        if self._unwritten:
            with contextlib.suppress(StoreError):
                await self._store.ping()
                self._unwritten.clear()

    def _is_free(self, live: LiveSandbox, now: float) -> bool:
        if live.id in self._reaping or live.id in self._unwritten or now < self._not_before.get(live.id, 0):
            return False
        return not live.lock.locked()

    def _judge(self, live: LiveSandbox, now: float, today: float) -> Fate | None:
        sandbox = live.sandbox
        if sandbox.status in _UNFINISHED:
            return Fate.UNFINISHED
        if sandbox.expires_at is not None and today >= sandbox.expires_at:
            return Fate.EXPIRED
        if sandbox.status is Status.RUNNING:
            idle_s = sandbox.idle_timeout_s
            is_idle = idle_s is not None and not live.is_busy and now - live.used_at >= idle_s
            return Fate.IDLE if is_idle else None
        kept_s = self._policy.stopped_lifetime_s
        return Fate.FORGOTTEN if kept_s is not None and today - sandbox.changed_at >= kept_s else None

    async def _reap(self, live: LiveSandbox) -> None:
        try:
            async with self._at_once, live.held():
                # A request may have used it while we waited.
                fate = None if live.is_gone else self._judge(live, time.monotonic(), time.time())
                if fate is not None:
                    await self._apply(live, fate)
        except StoreError:
            self._unwritten.add(live.id)
            _log.warning("reaper.stop_failed", extra={"sandbox_id": live.id}, exc_info=True)
        except Exception:  # noqa: BLE001 - a fault of one must not keep us from the others
            self._not_before[live.id] = time.monotonic() + _BACK_OFF_S
            _log.warning("reaper.stop_failed", extra={"sandbox_id": live.id}, exc_info=True)
        finally:
            self._reaping.discard(live.id)

    async def _apply(self, live: LiveSandbox, fate: Fate) -> None:
        if fate is Fate.UNFINISHED:
            await self._transitions.settle(live)
            return
        is_kept = fate is Fate.IDLE and live.sandbox.storage is Storage.PERSISTENT
        if is_kept:
            await self._transitions.stop(live, f"it was idle for {live.sandbox.idle_timeout_s:g} seconds")
        else:
            await self._transitions.destroy(live)
        self._audit.note(None, "sandbox.stop" if is_kept else "sandbox.delete", sandbox_id=live.id, reason=fate.value)

    async def _touch(self, live: LiveSandbox) -> None:
        live.touched_at = time.monotonic()
        try:
            await self._store.touch(live.id, live.active_at)
        except StoreError:
            _log.warning("reaper.touch_failed", extra={"sandbox_id": live.id}, exc_info=True)
