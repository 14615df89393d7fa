"""Image builds and removals: they exclude each other, and the status is consistent."""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.core.estate import ADMIN, Estate
from warren.core.image_builds import ImageBuilds
from warren.core.images.cache import ImageCache
from warren.core.images.catalog import Catalog
from warren.core.sandboxes.pool import SandboxPool
from warren.domain.errors import Conflict

if TYPE_CHECKING:
    from unit.core.conftest import Serve
    from warren.core.images.catalog import ImageStatus
    from warren.domain.values import Image

_DEADLINE_S = 60.0


def test_nothing_is_built_or_removed_again_while_an_image_is_being_removed(serve: Serve, images_dir: str) -> None:
    async def scenario(estate: Estate) -> None:
        catalog = Catalog(images_dir)
        reached: list[str] = []

        class Meddled(SandboxPool):
            """A pool in whose time another caller asks for the image."""

            async def evict(self, name: str) -> None:
                for ask in (builds.start, builds.remove):
                    with pytest.raises(Conflict, match="is being removed"):
                        await ask(ADMIN, name)
                    reached.append(name)
                await super().evict(name)

        pool = Meddled(estate.engine, estate.store, estate.connections, estate.images, estate.policy)
        builds = ImageBuilds(
            catalog=catalog,
            images=estate.images,
            store=estate.store,
            pool=pool,
            engine=estate.engine,
            audit=estate.audit,
        )
        image = (await estate.create()).image
        async with builds:
            with pytest.raises(Conflict, match="made from image"):
                await builds.remove(ADMIN, image)
            assert reached == [image, image]
            assert await builds.start(ADMIN, image) is None, "it is built, and no removal is under way"

    serve(scenario)


class Slow(Catalog):
    """A catalog that looks before a build is there and, once it `waits`, says what it saw when the build has ended."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.waits = self.is_built = False
        self.has_looked, self.has_ended = threading.Event(), threading.Event()

    def status(self, name: str) -> ImageStatus:
        seen = dataclasses.replace(super().status(name), built=self.is_built)
        if self.waits and seen.name == "python" and not seen.built:
            self.has_looked.set()
            assert self.has_ended.wait(_DEADLINE_S)
        return seen

    def build(self, name: str, *_: Any, **__: Any) -> Image:
        assert self.has_looked.wait(_DEADLINE_S)
        self.is_built = True
        return self.get(name)


@pytest.mark.parametrize("is_listed", [False, True])
def test_an_image_whose_build_ends_while_it_is_looked_at_is_built(
    serve: Serve, images_dir: str, *, is_listed: bool
) -> None:
    async def scenario(estate: Estate) -> None:
        catalog = Slow(images_dir)
        images = ImageCache(catalog)
        builds = ImageBuilds(
            catalog=catalog,
            images=images,
            store=estate.store,
            pool=estate.pool,
            engine=estate.engine,
            audit=estate.audit,
        )

        async def tell() -> None:
            assert build is not None
            assert [step async for step in build.follow()] == []
            catalog.has_ended.set()

        async with builds, anyio.create_task_group() as tasks:
            build = await builds.start(ADMIN, "python")
            catalog.waits = True
            tasks.start_soon(tell)
            if is_listed:
                (status,) = [status for spec, status in await images.list() if spec.name == "python"]
            else:
                _, status = await builds.status("python")
            assert build is not None
            assert (build.finished_at is not None, status.built) == (True, True)

    serve(scenario)
