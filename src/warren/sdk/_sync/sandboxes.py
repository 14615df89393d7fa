# Made from src/warren/sdk/_async/sandboxes.py by `make sdk`: change that instead.
"""The sandboxes of a service: create, get, list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.sdk._sync.sandbox import Sandbox
from warren.sdk.address import encode
from warren.sdk.options import ListOptions, SandboxOptions, build_body
from warren.sdk.request import api, once
from warren.sdk.values import build, build_page
from warren.sdk.values_sandboxes import SandboxInfo

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Unpack

    from warren.sdk._sync.connection import Connection
    from warren.sdk.values import Page

_CREATE_S = 120.0
_PAGE = 200


class Sandboxes:
    """The sandboxes of a service that the key may see."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(self, **options: Unpack[SandboxOptions]) -> Sandbox:
        """Create a sandbox, or get the one of the `session_key`. Raises Error."""
        request = api(
            "POST",
            "sandboxes",
            json=build_body(options, SandboxOptions),
            headers=once(key=options.get("idempotency_key")),
            repeatable=True,
            read_timeout_s=_CREATE_S,
        )
        return self._build(self._connection.ask_json(request))

    def get(self, sandbox_id: str) -> Sandbox:
        """Get a sandbox. Raises NotFound and other Errors."""
        return self._build(self._connection.ask_json(api("GET", "sandboxes", encode(sandbox_id))))

    def at(self, sandbox_id: str) -> Sandbox:
        """Return a sandbox by its id, without a request."""
        return Sandbox(self._connection, encode(sandbox_id))

    def list(self, *, offset: int = 0, limit: int = 50, **which: Unpack[ListOptions]) -> Page[Sandbox]:
        """List sandboxes, newest first. Raises Error."""
        labels = which.get("metadata") or {}
        params = build_body(which, ListOptions, offset=offset, limit=limit)
        params["metadata"] = [f"{name}={value}" for name, value in labels.items()]
        return build_page(self._connection.ask_json(api("GET", "sandboxes", params=params)), self._build)

    def all(self, **which: Unpack[ListOptions]) -> Generator[Sandbox, None, None]:
        """Yield every sandbox that `list` would, page after page. Raises Error."""
        offset = 0
        while True:
            page = self.list(**which, offset=offset, limit=_PAGE)
            for sandbox in page:
                yield sandbox
            offset += len(page)
            if not page.items or offset >= page.total:
                return

    def _build(self, raw: Any) -> Sandbox:
        info = build(SandboxInfo, raw)
        return Sandbox(self._connection, info.id, info)
