"""Every store check over every store, on both event loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from warren.stores.sqlite import SqliteStore
from warren.testing.store_checks import CHECKS, StoreSubject, perform

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

LOOPS: dict[str, dict[str, Any]] = {"asyncio": {}, "uvloop": {"use_uvloop": True}}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_store(check: Callable[[StoreSubject], Awaitable[None]], loop: str, tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path)
        await store.open()
        try:
            await perform(check, StoreSubject(store, lambda: SqliteStore(tmp_path)))
        finally:
            await store.close()

    anyio.run(main, backend_options=LOOPS[loop])


def test_there_are_enough_checks() -> None:
    assert len(CHECKS) >= 35
