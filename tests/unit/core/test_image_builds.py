"""Building and removing images: neither begins while the other is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.core.estate import ADMIN, Estate
from warren.core.image_builds import ImageBuilds
from warren.core.images import Catalog
from warren.core.pool import Pool
from warren.errors import Conflict

if TYPE_CHECKING:
    from unit.core.conftest import Serve


def test_nothing_is_built_or_removed_again_while_an_image_is_being_removed(serve: Serve, images_dir: str) -> None:
    async def scenario(estate: Estate) -> None:
        catalog = Catalog(images_dir)
        reached: list[str] = []

        class Meddled(Pool):
            """A pool in whose time somebody else asks for the image."""

            async def evict(self, name: str) -> None:
                for ask in (builds.start, builds.remove):
                    with pytest.raises(Conflict, match="is being removed"):
                        await ask(ADMIN, name)
                    reached.append(name)
                await super().evict(name)

        pool = Meddled(estate.engine, estate.links, estate.images, estate.policy)
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
            assert await builds.start(ADMIN, image) is None, "it is built, and nobody removes it any more"

    serve(scenario)
