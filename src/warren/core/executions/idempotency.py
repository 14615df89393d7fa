"""Idempotency guard: two requests with one key run once and get the same answer.

Single-flight, not a lock: the second caller shares the execution of the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from warren.core.executions.request import build_fingerprint
from warren.core.sandboxes.creation import IDEMPOTENCY_S
from warren.domain.errors import Error, StoreError
from warren.domain.values import new_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from warren.core.executions.request import NewExecution
    from warren.core.executions.supervisor import Running
    from warren.domain.records import Caller
    from warren.stores.base import Store


class IdempotencyGuard:
    """The keys in use in this process. The store has all of them."""

    def __init__(self, store: Store, find: Callable[[str], Awaitable[Running | None]]) -> None:
        self._store = store
        self._find = find
        self._under_way: dict[str, anyio.Event] = {}

    async def run(
        self, caller: Caller, sandbox_id: str, new: NewExecution, act: Callable[[str], Awaitable[Running]]
    ) -> Running:
        """Run it, or wait for the call with the same key. Raises Conflict when the key came with another request.

        A key stays tied to the execution that ran, however that ended. One that never ran frees its key.
        """
        owner, key = caller.principal.owner, new.idempotency_key
        if key is None:
            return await act(new_id("exe"))
        fingerprint = build_fingerprint(sandbox_id, new)
        while True:
            ours = new_id("exe")
            # WHY before the store remembers it: a call that finds our id there must find it here.
            done = self._under_way[ours] = anyio.Event()
            try:
                first = await self._store.remember(owner, key, fingerprint, ours, ttl_s=IDEMPOTENCY_S)
                if first == ours:
                    return await self._act(caller, key, act, ours)
            finally:
                del self._under_way[ours]
                done.set()
            if first in self._under_way:
                await self._under_way[first].wait()
            elif (found := await self._find(first)) is not None:
                found.hold()
                return found
            else:
                # The first call ended before it ran anything. A third may have seen that and have the key by now.
                await self._store.forget(owner, key, first)

    async def _act(self, caller: Caller, key: str, act: Callable[[str], Awaitable[Running]], ours: str) -> Running:
        try:
            return await act(ours)
        except BaseException as error:
            never_ran = isinstance(error, Error) and not isinstance(error, StoreError)
            with anyio.CancelScope(shield=True):
                if never_ran or await self._find(ours) is None:
                    await self._store.forget(caller.principal.owner, key, ours)
            raise
