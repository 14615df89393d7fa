"""Downloads of packages: a request for a cancelled download starts another."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING

import anyio

from warren.core.packages.downloads import Downloads, Wanted
from warren.core.packages.fetch import Fetched
from warren.core.packages.sources import Digest
from warren.core.packages.store import PackageStore
from warren.domain.records import Owner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CONTENT = b"all of it"
ANN = Owner("default", "ann")


def test_a_download_unread_for_long_is_started_anew(tmp_path: Path) -> None:
    wanted = Wanted(name="a.whl", url="", digest=Digest("sha256", hashlib.sha256(CONTENT).hexdigest()))

    async def story() -> None:
        goes_on = anyio.Event()

        async def body() -> AsyncIterator[bytes]:
            await goes_on.wait()
            yield CONTENT

        @contextlib.asynccontextmanager
        async def fetch() -> AsyncIterator[Fetched]:
            yield Fetched(200, "", {}, body())

        store = PackageStore(str(tmp_path), 1 << 20)
        store.open()
        async with anyio.create_task_group() as tasks:
            downloads = Downloads(store, 1 << 20, tasks)
            async with downloads.join(wanted, ANN, fetch) as first:
                await first.wait_begun()
            # As its deadline does; the task that downloads has not heard of it yet.
            first.scope.cancel()
            async with downloads.join(wanted, ANN, fetch) as second:
                goes_on.set()
                await second.wait_begun()
                assert b"".join([piece async for piece in second.read(0, None)]) == CONTENT
            assert second is not first
            downloads.close()

    anyio.run(story)
