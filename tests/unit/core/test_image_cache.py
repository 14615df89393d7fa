from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from warren.core.images.cache import ImageCache
from warren.core.images.catalog import Catalog
from warren.domain.errors import NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from warren.domain.values import Image


def test_an_image_is_read_once_though_many_ask(images_dir: str, python_image: Image) -> None:
    async def go() -> None:
        cache = ImageCache(Catalog(images_dir))
        found: list[Image] = []

        async def ask() -> None:
            found.append(await cache.get("python"))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)

        assert found == [python_image] * 20
        assert len({id(image) for image in found}) == 1

    anyio.run(go)


def test_a_build_is_found_by_its_digest_else_the_current_one(images_dir: str, python_image: Image) -> None:
    async def go() -> None:
        for digest in (python_image.digest, "f" * 32):
            assert await ImageCache(Catalog(images_dir)).get_build("python", digest) == python_image

    anyio.run(go)


def test_what_is_not_there_or_not_built_is_said(tmp_path: Path) -> None:
    async def go() -> None:
        cache = ImageCache(Catalog(str(tmp_path)))
        with pytest.raises(NotFound, match="did you mean python"):
            await cache.get("pyton")
        with pytest.raises(NotFound, match="warren image build python"):
            await cache.get_build("python", "f" * 32)

    anyio.run(go)


def test_the_list_is_read_once_though_many_ask(images_dir: str, python_image: Image) -> None:
    async def go() -> None:
        cache = ImageCache(Catalog(images_dir))
        found: list[object] = []

        async def ask() -> None:
            found.append(await cache.list())

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)

        assert len({id(each) for each in found}) == 1
        built = {spec.name: status.digest for spec, status in await cache.list() if status.built}
        assert built["python"] == python_image.digest

    anyio.run(go)
