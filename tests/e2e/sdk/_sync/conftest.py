# Made from tests/e2e/sdk/_async/conftest.py by `make sdk`: change that instead.
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from warren import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.serving import RunningService
    from warren import Sandbox


@pytest.fixture
def client(service: RunningService, url: str) -> Iterator[Client]:
    with Client(url, service.key) as client:
        yield client


@pytest.fixture
def sandbox(client: Client, shared: str) -> Sandbox:
    return client.sandboxes.get(shared)


@pytest.fixture
def fresh(client: Client) -> Iterator[Sandbox]:
    with client.sandbox() as sandbox:
        yield sandbox
