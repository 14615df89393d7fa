"""Every store check over every store, on both event loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from warren.stores.memory import MemoryStore, Tables
from warren.stores.sqlite import SqliteStore
from warren.testing.store_checks import CHECKS, StoreSubject, perform

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from warren.stores.base import Store

LOOPS: dict[str, dict[str, Any]] = {"asyncio": {}, "uvloop": {"use_uvloop": True}}


@pytest.fixture(params=["sqlite", "memory"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Return what builds stores over the same data."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path)
    tables = Tables()
    return lambda: MemoryStore(tables)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_store(check: Callable[[StoreSubject], Awaitable[None]], loop: str, make_store: Callable[[], Store]) -> None:
    async def main() -> None:
        store = make_store()
        await store.open()
        try:
            await perform(check, StoreSubject(store, make_store))
        finally:
            await store.close()

    anyio.run(main, backend_options=LOOPS[loop])


def test_there_are_enough_checks() -> None:
    assert len(CHECKS) >= 35
