"""The store of the data folder, for one command. The service may run meanwhile."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.core.audit.log import Audit
    from warren.domain.records import Caller
    from warren.stores.base import Store


@contextlib.asynccontextmanager
async def opened_store(data_dir: str | None, *, must_exist: bool = True) -> AsyncIterator[tuple[Store, Audit]]:
    """Open the store that the settings name, and what writes its audit record, for the length of a block.

    Raises StoreError where none is, unless it may be made.
    """
    from warren.core.audit.log import Audit
    from warren.core.policy.policy import Policy
    from warren.settings import Settings
    from warren.stores.base import load_store

    settings = Settings.load(flags={"data_dir": data_dir})
    # The protocol does not cover construction: that is between a store's settings and its class.
    store_class: Any = load_store(settings.store)
    store: Store = store_class(settings.data_dir, must_exist=must_exist)
    await store.open()
    try:
        yield store, Audit(store, Policy())
    finally:
        await store.close()


def build_caller() -> Caller:
    """Say who is at the keyboard, for the audit record."""
    import pwd

    from warren.domain.records import Caller, Principal, Scope
    from warren.domain.values import new_id

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    person = Principal(tenant="command-line", subject=name, scope=Scope.ADMIN)
    return Caller(principal=person, request_id=new_id("req"), address="command line")
