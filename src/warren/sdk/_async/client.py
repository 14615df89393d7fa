"""The client of one service."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from warren.domain.errors import BuildFailed, Error, NotFound
from warren.sdk._async.connection import AsyncConnection
from warren.sdk._async.renders import AsyncRenders
from warren.sdk._async.sandboxes import AsyncSandboxes
from warren.sdk._async.skills import AsyncSkills
from warren.sdk.address import encode
from warren.sdk.io_async import shielded, sleep
from warren.sdk.options import AuditOptions, OneShotOptions, build_body, input_files, read_timeout, what_to_run
from warren.sdk.request import Request, api
from warren.sdk.results import build_one_shot
from warren.sdk.retries import Retries
from warren.sdk.values import build, build_page
from warren.sdk.values_service import AuditRow, Health, Image

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    import httpx

    from warren.sdk._async.sandbox import AsyncSandbox
    from warren.sdk.content import Uploadable
    from warren.sdk.options import SandboxOptions
    from warren.sdk.results import OneShotResult
    from warren.sdk.values import Page
    from warren.sdk.values_service import Build

_LOOK_S = 0.5
"""Between two looks at the progress of a build."""


class AsyncClient:
    """A client of one service.

    `url` and `api_key` default to WARREN_URL and WARREN_API_KEY; `unix:/path` is a URL too. `timeout` limits the wait
    for an answer, in seconds, except for runs of code. Close it, or use it in `with`.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int | Retries = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        how_often = retries if isinstance(retries, Retries) else Retries(most=retries)
        self._connection = AsyncConnection(url, api_key, timeout=timeout, retries=how_often, transport=transport)
        self.sandboxes = AsyncSandboxes(self._connection)
        """Creates, finds and lists sandboxes."""
        self.renders = AsyncRenders(self._connection)
        """Renders pages to presentations."""
        self.skills = AsyncSkills(self._connection)
        """Your skills, and shared ones."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._connection.address)!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._connection.close()

    @property
    def url(self) -> str:
        """The address of the service."""
        return str(self._connection.address)

    @contextlib.asynccontextmanager
    async def sandbox(self, **options: Unpack[SandboxOptions]) -> AsyncIterator[AsyncSandbox]:
        """Create a sandbox for a `with` block, and delete it at its end. Raises Error."""
        made = await self.sandboxes.create(**options)
        try:
            yield made
        except BaseException:
            # An exception of the block must reach the caller, not one of the cleanup.
            async with shielded():
                with contextlib.suppress(Error):
                    await made.delete()
            raise
        with contextlib.suppress(NotFound):
            await made.delete()

    async def run(
        self,
        code: str | None = None,
        *,
        command: str | Sequence[str] | None = None,
        files: Mapping[str, Uploadable] | None = None,
        **options: Unpack[OneShotOptions],
    ) -> OneShotResult:
        """Run something in a sandbox of its own, deleted afterwards; files go in and come back. Raises Error."""
        body = build_body(options, OneShotOptions, **what_to_run(code, command), files=input_files(files) or None)
        limit = read_timeout(body, self._connection.timeout)
        return build_one_shot(await self._connection.ask_json(api("POST", "run", json=body, read_timeout_s=limit)))

    async def images(self) -> tuple[Image, ...]:
        """List the images that sandboxes are made from. Raises Error."""
        return await self._connection.ask_all(Image, api("GET", "images"))

    async def image(self, name: str) -> Image:
        """Get an image, and the progress of its build. Raises NotFound and other Errors."""
        return await self._connection.ask_for(Image, api("GET", "images", encode(name)))

    async def build_image(
        self, name: str, *, wait: bool = True, progress: Callable[[Build], object] | None = None
    ) -> Image:
        """Build an image, as admin; the build goes on when the client leaves. Raises BuildFailed and other Errors."""
        request = api("POST", "images", encode(name), "build", repeatable=True)
        image = await self._connection.ask_for(Image, request)
        while wait and image.state == "building":
            if progress is not None and image.build is not None:
                progress(image.build)
            await sleep(_LOOK_S)
            image = await self.image(name)
        if wait and image.state != "built":
            why = None if image.build is None else image.build.error
            raise BuildFailed(why or f"image {name} was not built to the end: begin again")
        return image

    async def remove_image(self, name: str, *, stale_only: bool = False) -> int:
        """Delete the builds of an image, as admin, or only the earlier ones; returns the bytes freed. Raises Error."""
        request = api("DELETE", "images", encode(name), params={"stale_only": stale_only})
        return int((await self._connection.ask_json(request))["freed_bytes"])

    async def audit(self, *, offset: int = 0, limit: int = 100, **query: Unpack[AuditOptions]) -> Page[AuditRow]:
        """List the audit record, newest first: all of it as admin, else your own rows. Raises Error."""
        params = build_body(query, AuditOptions, offset=offset, limit=limit)
        found = await self._connection.ask_json(api("GET", "audit", params=params))
        return build_page(found, lambda row: build(AuditRow, row))

    async def health(self) -> Health:
        """Get the health of the service; `degraded` is an answer, not an error. Raises Error where none answers."""
        answer = await self._connection.ask(Request(method="GET", path="/healthz", accepts=(503,)))
        return build(Health, answer.json())

    async def health_details(self) -> dict[str, Any]:
        """Get the state of every part of the service, as admin. Raises Error."""
        request = Request(method="GET", path="/healthz/details", accepts=(503,))
        found: dict[str, Any] = await self._connection.ask_json(request)
        return found

    async def is_ready(self) -> bool:
        """Whether the service takes work. Raises Error where none answers."""
        answer = await self._connection.ask(Request(method="GET", path="/readyz", accepts=(503,)))
        return answer.status_code == 200

    async def ping(self) -> None:
        """Check that a service answers. Raises Error."""
        await self._connection.ask(Request(method="GET", path="/livez"))

    async def metrics(self) -> str:
        """Get the metrics of the service, in Prometheus' text format. Raises Error."""
        return (await self._connection.ask(Request(method="GET", path="/metrics"))).text
