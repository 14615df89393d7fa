"""The sandboxes of a service: create, get, list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.sdk._async.sandbox import AsyncSandbox
from warren.sdk.address import encode
from warren.sdk.options import ListOptions, SandboxOptions, build_body
from warren.sdk.request import api, once
from warren.sdk.values import build, build_page
from warren.sdk.values_sandboxes import SandboxInfo

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Any, Unpack

    from warren.sdk._async.connection import AsyncConnection
    from warren.sdk.values import Page

_CREATE_S = 120.0
_PAGE = 200


class AsyncSandboxes:
    """The sandboxes of a service that the key may see."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create(self, **options: Unpack[SandboxOptions]) -> AsyncSandbox:
        """Create a sandbox, or get the one of the `session_key`. Raises Error."""
        request = api(
            "POST",
            "sandboxes",
            json=build_body(options, SandboxOptions),
            headers=once(key=options.get("idempotency_key")),
            repeatable=True,
            read_timeout_s=_CREATE_S,
        )
        return self._build(await self._connection.ask_json(request))

    async def get(self, sandbox_id: str) -> AsyncSandbox:
        """Get a sandbox. Raises NotFound and other Errors."""
        return self._build(await self._connection.ask_json(api("GET", "sandboxes", encode(sandbox_id))))

    def at(self, sandbox_id: str) -> AsyncSandbox:
        """Return a sandbox by its id, without a request."""
        return AsyncSandbox(self._connection, encode(sandbox_id))

    async def list(self, *, offset: int = 0, limit: int = 50, **which: Unpack[ListOptions]) -> Page[AsyncSandbox]:
        """List sandboxes, newest first. Raises Error."""
        labels = which.get("metadata") or {}
        params = build_body(which, ListOptions, offset=offset, limit=limit)
        params["metadata"] = [f"{name}={value}" for name, value in labels.items()]
        return build_page(await self._connection.ask_json(api("GET", "sandboxes", params=params)), self._build)

    async def all(self, **which: Unpack[ListOptions]) -> AsyncGenerator[AsyncSandbox, None]:
        """Yield every sandbox that `list` would, page after page. Raises Error."""
        offset = 0
        while True:
            page = await self.list(**which, offset=offset, limit=_PAGE)
            for sandbox in page:
                yield sandbox
            offset += len(page)
            if not page.items or offset >= page.total:
                return

    def _build(self, raw: Any) -> AsyncSandbox:
        info = build(SandboxInfo, raw)
        return AsyncSandbox(self._connection, info.id, info)
