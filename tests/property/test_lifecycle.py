"""Whatever is done to sandboxes, with deaths and restarts in between: records, engine and quotas agree."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import Counter
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from unit.core.estate import ANN, BOB, Estate
from warren.core.policy.policy import Policy
from warren.core.sandboxes.changes import SandboxChanges
from warren.core.sandboxes.sandboxes import NewSandbox
from warren.domain.errors import Conflict, NotFound, QuotaExceeded, SandboxLost
from warren.domain.lifecycle import ACTIVE, NEXT, Status
from warren.domain.records import ResourceUse
from warren.domain.values import Storage
from warren.stores.base import NO_CEILINGS, Ceilings
from warren.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from warren.domain.records import Caller, Sandbox
    from warren.domain.values import Image

QUOTA = ResourceUse(sandboxes=3, active=2)
CALLERS = st.sampled_from([ANN, BOB])
RACERS = ["create", "stop", "start", "delete", "run", "reap"]
KEYS = st.sampled_from([None, "chat"])


class WatchedStore(SqliteStore):
    """The store, and a look at every status that is written into it."""

    def __init__(self, data_dir: str, statuses: dict[str, Status]) -> None:
        super().__init__(data_dir)
        self.statuses = statuses

    async def add(self, sandbox: Sandbox, ceilings: Ceilings = NO_CEILINGS) -> None:
        await super().add(sandbox, ceilings)
        assert sandbox.status in {Status.CREATING, Status.RUNNING}
        self.statuses[sandbox.id] = sandbox.status

    async def swap(self, sandbox: Sandbox, ceilings: Ceilings = NO_CEILINGS, *, was: Status) -> bool:
        swapped = await super().swap(sandbox, ceilings, was=was)
        if swapped:
            assert self.statuses[sandbox.id] is was
            assert sandbox.status is was or sandbox.status in NEXT[was]
            self.statuses[sandbox.id] = sandbox.status
        return swapped

    async def remove(self, sandbox_id: str) -> None:
        await super().remove(sandbox_id)
        assert self.statuses.pop(sandbox_id) is Status.DESTROYING


def add_up(sandboxes: Iterable[Sandbox]) -> ResourceUse:
    """Return the resource use of an owner of these."""
    rows = list(sandboxes)
    active = [row for row in rows if row.is_active]
    return ResourceUse(
        len(rows),
        len(active),
        sum(row.limits.memory_bytes for row in active),
        sum(row.limits.disk_bytes for row in rows),
    )


class Lifecycle(RuleBasedStateMachine):
    """What a caller expects of every sandbox: who has it, whether it is kept, and what its file says."""

    images_dir = ""
    sandboxes = Bundle("sandboxes")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="warren-lifecycle-")
        self.statuses: dict[str, Status] = {}
        self.known: dict[str, tuple[Caller, Storage, str | None]] = {}
        self.written: dict[str, int] = {}
        self.portal_manager = start_blocking_portal()
        self.portal = self.portal_manager.__enter__()

    @initialize(size=st.sampled_from([0, 1]))
    def begin(self, size: int) -> None:
        self.policy = Policy(image="python", own=QUOTA, pool_size=size)
        self._open()

    @rule(target=sandboxes, caller=CALLERS, key=KEYS, storage=st.sampled_from(Storage))
    def create(self, caller: Caller, key: str | None, storage: Storage) -> Any:
        before = self._find(caller, key)
        mine = [sandbox_id for sandbox_id, (owner, _, _) in self.known.items() if owner is caller]
        active = [sandbox_id for sandbox_id in mine if self.statuses[sandbox_id] in ACTIVE]
        try:
            sandbox, is_new = self._call(
                self.estate.sandboxes.create, caller, NewSandbox(session_key=key, storage=storage)
            )
        except QuotaExceeded:
            assert len(mine) == QUOTA.sandboxes or len(active) == QUOTA.active
            return multiple()
        assert sandbox.status is Status.RUNNING
        assert (before is None) == is_new
        if not is_new:
            assert sandbox.id == before
            return multiple()
        self.known[sandbox.id] = (caller, storage, key)
        self.written[sandbox.id] = 0
        return sandbox.id

    @rule(sandbox_id=sandboxes)
    def run_something(self, sandbox_id: str) -> None:
        """Count up in a file: it must have survived whatever came before."""
        caller = self._caller(sandbox_id)
        program = "echo x >> lines.txt; wc -l < lines.txt"
        try:
            result = self._call(self.estate.shell, sandbox_id, program, caller)
        except NotFound:
            assert sandbox_id not in self.known
        except QuotaExceeded:
            assert self.statuses[sandbox_id] is Status.STOPPED
        else:
            self.written[sandbox_id] += 1
            assert int(result.stdout) == self.written[sandbox_id]

    @rule(sandbox_id=sandboxes)
    def stop(self, sandbox_id: str) -> None:
        try:
            stopped = self._call(self.estate.sandboxes.stop, self._caller(sandbox_id), sandbox_id)
            assert stopped.status is Status.STOPPED
        except NotFound:
            assert sandbox_id not in self.known
        except Conflict:
            assert self.known[sandbox_id][1] is Storage.EPHEMERAL

    @rule(sandbox_id=sandboxes)
    def start(self, sandbox_id: str) -> None:
        try:
            started = self._call(self.estate.sandboxes.start, self._caller(sandbox_id), sandbox_id)
            assert started.status is Status.RUNNING
        except NotFound:
            assert sandbox_id not in self.known
        except QuotaExceeded:
            assert self.statuses[sandbox_id] is Status.STOPPED

    @rule(sandbox_id=consumes(sandboxes))
    def delete(self, sandbox_id: str) -> None:
        try:
            self._call(self.estate.sandboxes.delete, self._caller(sandbox_id), sandbox_id)
        except NotFound:
            assert sandbox_id not in self.known
        self.known.pop(sandbox_id, None)

    @rule(sandbox_id=consumes(sandboxes))
    def expire(self, sandbox_id: str) -> None:
        if sandbox_id in self.known:
            changes = SandboxChanges(max_lifetime_s=1e-6)
            self._call(self.estate.sandboxes.update, self._caller(sandbox_id), sandbox_id, changes)
            self._call(self.estate.reaper.tick)
            del self.known[sandbox_id]

    @rule(sandbox_id=sandboxes)
    def leave_idle(self, sandbox_id: str) -> None:
        if sandbox_id in self.known:
            caller = self._caller(sandbox_id)
            for idle_timeout_s in (1e-6, 0):
                changes = SandboxChanges(idle_timeout_s=idle_timeout_s)
                self._call(self.estate.sandboxes.update, caller, sandbox_id, changes)
                self._call(self.estate.reaper.tick)
                if self.known[sandbox_id][1] is Storage.EPHEMERAL:
                    del self.known[sandbox_id]
                    return
            assert self.statuses[sandbox_id] is Status.STOPPED

    @rule(sandbox_id=sandboxes)
    def kill_agent(self, sandbox_id: str) -> None:
        if self.statuses.get(sandbox_id) is Status.RUNNING:
            live = self.estate.transitions.live_sandboxes[sandbox_id]
            if not live.is_ready:
                # It is unused: its death is noticed only at the next use.
                self._call(self.estate.transitions.reach, live)
            agent = live.agent
            self.estate.kill_agent(sandbox_id)
            self._call(agent.wait_lost)
            self._call(self.estate.settle)
            if self.known[sandbox_id][1] is Storage.EPHEMERAL:
                del self.known[sandbox_id]

    @rule(sandbox_id=sandboxes, what=st.lists(st.sampled_from(RACERS), min_size=2, max_size=5))
    def race(self, sandbox_id: str, what: list[str]) -> None:
        """Do several things to one sandbox, and for one session key, in the same moment."""
        caller = self._caller(sandbox_id)
        self._call(self._race, caller, sandbox_id, what)
        self._call(self.estate.settle)
        rows = self._call(self.estate.rows)
        self.known = {each: known for each, known in self.known.items() if each in rows}
        for each in rows.keys() - self.known.keys():
            self.known[each] = (caller, rows[each].storage, rows[each].session_key)

    async def _race(self, caller: Caller, sandbox_id: str, what: list[str]) -> None:
        sandboxes = self.estate.sandboxes
        found: set[str] = set()

        async def create() -> None:
            found.add((await sandboxes.create(caller, NewSandbox(session_key="race")))[0].id)

        racers: dict[str, Callable[[], Awaitable[object]]] = {
            "create": create,
            "stop": lambda: sandboxes.stop(caller, sandbox_id),
            "start": lambda: sandboxes.start(caller, sandbox_id),
            "delete": lambda: sandboxes.delete(caller, sandbox_id),
            "run": lambda: self.estate.shell(sandbox_id, "true", caller),
            "reap": self.estate.reaper.tick,
        }

        async def attempt(name: str) -> None:
            with contextlib.suppress(NotFound, Conflict, QuotaExceeded, SandboxLost):
                await racers[name]()

        async with anyio.create_task_group() as tasks:
            for name in what:
                tasks.start_soon(attempt, name)
        assert len(found) <= 1

    @rule()
    def restart(self) -> None:
        """Die without a word, and come back over the same data folder."""
        self._close()
        self._open()

    @invariant()
    def everything_agrees(self) -> None:
        self._call(self.estate.settle)
        rows = self._call(self.estate.rows)
        pooled = sum(self.estate.pool.sizes().values())
        handles = self._call(self.estate.handles)

        assert set(rows) == set(self.known) == set(self.statuses) == set(self.estate.transitions.live_sandboxes)
        assert handles >= set(rows)
        assert len(handles - set(rows)) == pooled
        for sandbox_id, sandbox in rows.items():
            caller, storage, key = self.known[sandbox_id]
            assert (sandbox.owner, sandbox.storage, sandbox.session_key) == (caller.principal.owner, storage, key)
            assert sandbox.status is self.statuses[sandbox_id]
            assert sandbox.status in {Status.RUNNING, Status.STOPPED}
        keys = Counter((row.owner, row.session_key) for row in rows.values() if row.session_key is not None)
        assert max(keys.values(), default=1) == 1

    @invariant()
    def quotas_hold(self) -> None:
        rows = self._call(self.estate.rows)
        for caller in (ANN, BOB):
            holding = add_up(row for row in rows.values() if row.owner == caller.principal.owner)
            assert self._call(self.estate.store.holding, caller.principal.owner) == holding
            assert holding.over(QUOTA) is None

    def teardown(self) -> None:
        if hasattr(self, "opened"):
            self._call(self.estate.pool.drain)
            self._call(self.estate.clean)
            self._close()
        self.portal_manager.__exit__(None, None, None)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _open(self) -> None:
        store = WatchedStore(self.folder, self.statuses)
        self.estate = Estate(self.folder, self.images_dir, self.policy, store=store)
        self.opened = self.portal.wrap_async_context_manager(self.estate.open())
        self.opened.__enter__()
        for _ in range(2 * self.policy.pool_size):
            self._call(self._fill_pool)

    async def _fill_pool(self) -> None:
        await self.estate.pool._refill([await self.estate.images.get("python")])

    def _close(self) -> None:
        self.opened.__exit__(None, None, None)

    def _call(self, function: Any, *args: Any) -> Any:
        return self.portal.call(function, *args)

    def _caller(self, sandbox_id: str) -> Caller:
        return self.known[sandbox_id][0] if sandbox_id in self.known else ANN

    def _find(self, caller: Caller, key: str | None) -> str | None:
        owned = (each for each, (owner, _, its_key) in self.known.items() if owner is caller and its_key == key)
        return None if key is None else next(owned, None)


@pytest.mark.timeout(300)
def test_records_engine_and_quotas_always_agree(images_dir: str, python_image: Image) -> None:
    assert python_image.name == "python"
    Lifecycle.images_dir = images_dir
    run_state_machine_as_test(
        Lifecycle,
        settings=settings(
            max_examples=5,
            stateful_step_count=12,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
