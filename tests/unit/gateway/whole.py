"""The whole application over the bare engine, in this process and without a socket."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

import anyio
import httpx

from warren.bootstrap.app import build_service
from warren.gateway.app import build_app
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from warren.core.service import Service

DEADLINE_S = 60


class Whole:
    """A service, its data folder, and a client who needs no key."""

    def __init__(self, service: Service, client: httpx.AsyncClient, folder: str) -> None:
        self.service = service
        self.client = client
        self.folder = folder

    async def get(self, path: str) -> tuple[int, Any]:
        answer = await self.client.get(path)
        return answer.status_code, answer.json()


def tell(images_dir: str, story: Callable[[Whole], Awaitable[None]], *, is_open: bool = True, **groups: object) -> None:
    """Run `story` with a service that is open, or not yet."""

    async def run() -> None:
        # WHY: the path of a socket has 107 bytes, and pytest's folders are long.
        with tempfile.TemporaryDirectory(prefix="w") as folder, anyio.fail_after(DEADLINE_S):
            os.symlink(os.path.join(images_dir, "images"), os.path.join(folder, "images"))
            defaults = {"serve": {"auth": False}, "pool": {"size": 0}}
            settings = Settings.model_validate(
                {"data_dir": folder, "engine": "bare", "allow_bare": True, "image": "python", **defaults, **groups}
            )
            service = build_service(settings)
            transport = httpx.ASGITransport(build_app(service, settings))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                whole = Whole(service, client, folder)
                if not is_open:
                    await story(whole)
                    return
                async with service:
                    try:
                        await story(whole)
                    finally:
                        async for handle in service.engine.handles():
                            await service.engine.destroy(handle)

    anyio.run(run)
