"""Cache of built images for the hot path: read from disk in a thread, at most once a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from warren.domain.errors import NotFound

if TYPE_CHECKING:
    from warren.core.images.catalog import Catalog, ImageSpec, ImageStatus
    from warren.domain.values import Image

_FRESH_S = 1.0


class ImageCache:
    """Looks images up in a catalog, and caches the result for a second."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.removing: set[str] = set()
        """Images that are being removed: no new sandbox may use them."""
        self._found: dict[str, tuple[float, Image]] = {}
        self._reading = anyio.Lock(fast_acquire=True)
        self._listing = anyio.Lock(fast_acquire=True)
        self._listed: tuple[float, tuple[tuple[ImageSpec, ImageStatus], ...]] = (0.0, ())
        self.turn = 0
        """Incremented by `forget`: results of reads that began before are not cached."""

    async def list(self) -> tuple[tuple[ImageSpec, ImageStatus], ...]:
        """Return every image and whether it is built, by name. Raises InvalidRequest for an invalid spec."""
        async with self._listing:
            while time.monotonic() >= self._listed[0]:
                turn = self.turn
                found = await to_thread.run_sync(self._look)
                if turn == self.turn:
                    self._listed = (time.monotonic() + _FRESH_S, found)
            return self._listed[1]

    def _look(self) -> tuple[tuple[ImageSpec, ImageStatus], ...]:
        return tuple((spec, self._catalog.status(spec.name)) for spec in self._catalog.specs())

    async def get(self, name: str) -> Image:
        """Return the current build of an image. Raises NotFound: the nearest name, or the command that builds it."""
        image = self._fresh(name)
        if image is not None:
            return image
        async with self._reading:
            while (image := self._fresh(name)) is None:
                turn = self.turn
                found = await to_thread.run_sync(self._catalog.get, name)
                if found.name in self.removing:
                    raise NotFound(f"image {found.name} is being removed")
                if turn == self.turn:
                    self._found[name] = (time.monotonic() + _FRESH_S, found)
            return image

    async def get_build(self, name: str, digest: str) -> Image:
        """Return the build of that digest if it is still there, else the current one. Raises NotFound."""
        known = self._found.get(name)
        if known is not None and known[1].digest == digest:
            return await self.get(name)
        build = await to_thread.run_sync(self._catalog.find_build, digest)
        return await self.get(name) if build is None else build

    def forget(self) -> None:
        """Drop the cache."""
        self.turn += 1
        self._found.clear()
        self._listed = (0.0, ())

    def _fresh(self, name: str) -> Image | None:
        until, image = self._found.get(name, (0.0, None))
        return image if time.monotonic() < until else None
