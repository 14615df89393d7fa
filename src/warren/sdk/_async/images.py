"""The images that sandboxes are made from, as admin also to build and to remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.errors import BuildFailed
from warren.sdk.address import encode
from warren.sdk.io_async import sleep
from warren.sdk.request import api
from warren.sdk.values import build
from warren.sdk.values_images import Build, Image

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.sdk._async.connection import AsyncConnection

_LOOK_S = 0.5


async def build_image(
    connection: AsyncConnection, name: str, *, wait: bool, progress: Callable[[Build], object] | None
) -> Image:
    """Build an image. Raises Error."""
    image = build(Image, await connection.ask_json(api("POST", "images", encode(name), "build", repeatable=True)))
    while wait and image.state == "building":
        if progress is not None and image.build is not None:
            progress(image.build)
        await sleep(_LOOK_S)
        image = await get_image(connection, name)
    if wait and image.state != "built":
        why = None if image.build is None else image.build.error
        raise BuildFailed(why or f"image {name} was not built to the end: begin again")
    return image


async def get_image(connection: AsyncConnection, name: str) -> Image:
    """Get an image. Raises Error."""
    return build(Image, await connection.ask_json(api("GET", "images", encode(name))))
