"""The native API over every engine of this host: a service for each, and clients of several people."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from api.served import Served
from warren.domain.errors import EngineUnavailable
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from warren.domain.values import Image

ROOTLESS = os.geteuid() != 0


@pytest.fixture(scope="session")
def make_settings(
    tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: Image
) -> Callable[..., Settings]:
    """Settings of a service with a data folder of its own that has the images."""
    assert python_image.name == "python"

    def make(engine: str = "bare", **groups: object) -> Settings:
        folder = tmp_path_factory.mktemp(engine)
        os.symlink(os.path.join(images_dir, "images"), folder / "images")
        return Settings.model_validate(
            {
                "data_dir": str(folder),
                "engine": engine,
                "allow_bare": True,
                "image": "python",
                "optional_layers": ("cpu", "memory") if ROOTLESS else (),
                "pool": {"size": 0},
                **groups,
            }
        )

    return make


@pytest.fixture(scope="session")
def services(make_settings: Callable[..., Settings]) -> Iterator[Callable[[str], Served]]:
    """A service for the whole run on each engine, started by the first test that asks for it."""
    running: dict[str, Served] = {}

    def serve(engine: str) -> Served:
        if engine not in running:
            served = Served(make_settings(engine))
            served.start()
            running[engine] = served
        return running[engine]

    yield serve
    for served in running.values():
        served.stop()
    assert {engine: served.left for engine, served in running.items() if served.left} == {}


@pytest.fixture(scope="package", params=["bare", pytest.param("local", marks=pytest.mark.root)])
def served(request: pytest.FixtureRequest, services: Callable[[str], Served]) -> Served:
    """A service on each engine."""
    if request.param == "local" and ROOTLESS:
        pytest.skip("the local engine is tested as root here")
    try:
        return services(request.param)
    except EngineUnavailable as exc:
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def bare(services: Callable[[str], Served]) -> Served:
    """A service on the bare engine alone, for what is the same on every engine."""
    return services("bare")


@pytest.fixture
def ann(served: Served) -> Iterator[httpx.Client]:
    """A user who may run things."""
    with served.client("ann") as client:
        yield client


@pytest.fixture
def sandbox(ann: httpx.Client) -> Iterator[str]:
    """A sandbox of ann's, for one test."""
    made = ann.post("/sandboxes", json={})
    assert made.status_code == 201, made.text
    yield made.json()["id"]
    ann.delete(f"/sandboxes/{made.json()['id']}")


@pytest.fixture(scope="package")
def shared(served: Served) -> Iterator[str]:
    """A sandbox of ann's that many tests use, so none may rely on what is in it."""
    with served.client("ann") as ann:
        made = ann.post("/sandboxes", json={"metadata": {"shared": "yes"}}).json()["id"]
        yield made
        ann.delete(f"/sandboxes/{made}")
