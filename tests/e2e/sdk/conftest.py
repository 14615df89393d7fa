"""One real service for all tests of the client library, with `await` and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.sdk.breaking import BreakingProxy
from e2e.serving import RunningService, create

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.domain.values import Image


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: Image) -> Iterator[RunningService]:
    assert python_image.name == "python"
    service = RunningService(tmp_path_factory.mktemp("sdk") / "data", images_dir, "bare")
    try:
        yield service.start()
        assert service.stop() == 0
    finally:
        service.clear()


@pytest.fixture(scope="package")
def url(service: RunningService) -> str:
    return f"http://127.0.0.1:{service.port}"


@pytest.fixture(scope="package")
def shared(service: RunningService) -> Iterator[str]:
    """A sandbox that many tests use, so none may rely on what is in it."""
    with service.client() as client:
        made = create(client)
        yield made
        client.delete(f"/sandboxes/{made}")


@pytest.fixture
def proxy(service: RunningService) -> Iterator[BreakingProxy]:
    """Stands between client and service, and breaks connections when it is told to."""
    with BreakingProxy(service.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
