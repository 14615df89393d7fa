from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from warren import AsyncClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from e2e.serving import RunningService
    from warren import AsyncSandbox


@pytest.fixture
async def client(service: RunningService, url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url, service.key) as client:
        yield client


@pytest.fixture
async def sandbox(client: AsyncClient, shared: str) -> AsyncSandbox:
    return await client.sandboxes.get(shared)


@pytest.fixture
async def fresh(client: AsyncClient) -> AsyncIterator[AsyncSandbox]:
    async with client.sandbox() as sandbox:
        yield sandbox
