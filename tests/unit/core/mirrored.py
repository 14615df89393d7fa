"""A package index of the service over shelves of a test, called as the egress proxy calls it."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from warren.core.egress.internal_hosts import InnerRequest
from warren.core.packages.bodies import Body
from warren.core.packages.setup import PackageDoor, PackageSetup
from warren.core.packages.sources import PackageSources, Source
from warren.domain.records import Owner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.package_server import Shelf

HOST = "http://packages.warren.internal"
JSON = {"accept": "application/vnd.pypi.simple.v1+json"}


class Mirror:
    """Asks, and reads answers to their end."""

    def __init__(self, index: PackageDoor) -> None:
        self.index = index
        self.owner = Owner("default", "ann")
        """Who asks."""

    async def ask(self, target: str, *, method: str = "GET", **headers: str) -> Reply:
        """Ask for something, and read all of it."""
        status, sent, body = await self.begin(target, method=method, **headers)
        if isinstance(body, bytes):
            return Reply(status, sent, body)
        pieces = [piece async for piece in body]
        return Reply(status, sent, b"".join(pieces))

    async def begin(self, target: str, *, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], Any]:
        """Ask for something, and read nothing of it."""
        request = InnerRequest(
            sandbox_id="sbx_00000000",
            owner=self.owner,
            method=method,
            target=target.removeprefix(HOST),
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        answer = await self.index(request)
        assert isinstance(answer.body, bytes | Body)
        return answer.status, dict(answer.headers), answer.body

    async def page(self, project: str) -> list[dict[str, Any]]:
        """Return the files of a project."""
        reply = await self.ask(f"/pypi/simple/{project}/", **JSON)
        assert reply.status == 200, reply.body
        files: list[dict[str, Any]] = json.loads(reply.body)["files"]
        return files

    async def download(self, project: str) -> Reply:
        """Ask for the first file of a project."""
        return await self.ask((await self.page(project))[0]["url"])


class Reply:
    """A whole answer."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


@contextlib.asynccontextmanager
async def mirroring(folder: object, *shelves: Shelf | Source, **chosen: Any) -> AsyncIterator[Mirror]:
    """Have an index over these."""
    chosen.setdefault("page_s", 0.0)
    if "npm" not in chosen and shelves and not isinstance(shelves[0], Source):
        chosen["npm"] = Source(url=shelves[0].npm_url)
    python = tuple(each if isinstance(each, Source) else Source(url=each.url) for each in shelves)
    sources = PackageSources(python=python, **chosen)
    async with PackageDoor(PackageSetup(load=lambda: sources, folder=str(folder))) as index:
        yield Mirror(index)
