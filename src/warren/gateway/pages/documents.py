"""The pages of the service and the OpenAPI documents, and 404 for every address that no layer before knows.

| address | |
|---|---|
| `/` | Warren's own page |
| `/docs/…` | the documentation site |
| `/docs/api`, `/docs/api/<dialect>` | the API page: Swagger UI over a document |
| `/openapi.json`, `/openapi/<dialect>.json` | the documents |
| `/docs`, `/docs/<dialect>` | where the API pages were: redirects. The `type` of every problem is `/docs#<code>` |
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

import orjson
from starlette.exceptions import HTTPException

import warren
from warren.gateway.api.operations import Reply
from warren.gateway.openapi.document import SERVICE_PATHS, build_dialect_openapi, build_openapi
from warren.gateway.openapi.problems import explain_codes
from warren.gateway.pages.api import ASSETS, build_api_page, load_assets
from warren.gateway.pages.files import Site
from warren.gateway.pages.home import build_docs_home, build_home
from warren.gateway.pages.html import redirect

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from warren.gateway.api.operations import Operation
    from warren.gateway.dialects.dialect import Dialect
    from warren.settings import Settings

SITE = os.path.join(os.path.dirname(warren.__file__), "site")
"""Where `make docs-site` puts the documentation site: inside the package, so that a wheel brings it."""


def has_docs(settings: Settings) -> bool:
    """Whether documentation is served: unless the operator says, everywhere but in production."""
    return settings.env != "production" if settings.serve.docs is None else settings.serve.docs


class Documents:
    """The last layer. Everything is built at the first request for it: documents take longer than the application."""

    def __init__(
        self, settings: Settings, operations: Iterable[Operation], dialects: Iterable[Dialect], *, site: str = SITE
    ) -> None:
        self._settings = settings
        self._operations = tuple(operations)
        self._dialects = {dialect.name: dialect for dialect in dialects}
        self._has_docs = has_docs(settings)
        self._site = Site(site)
        self._home = functools.cache(self._build_home)
        self._native = functools.cache(self._build_native)
        self._dialect = functools.cache(self._build_dialect)
        self._assets = functools.cache(load_assets)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            raise HTTPException(404)
        path, is_read = scope["path"], scope["method"] in {"GET", "HEAD"}
        reply = await self._find(path, scope)
        if reply is None and (is_read or path not in SERVICE_PATHS):
            raise HTTPException(404)
        if reply is None or not is_read:
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        await reply(scope, receive, send)

    async def _find(self, path: str, scope: Scope) -> ASGIApp | None:
        reply: ASGIApp | None
        if path == "/":
            reply, route = self._home(), path
        elif not self._has_docs:
            return None
        elif (name := path.removeprefix("/docs/")) != path and not _is_ours(name, self._dialects):
            # Names of files are not routes: the metrics would count each of them apart.
            reply, route = await self._find_docs(name, scope), "/docs/{file}"
        else:
            reply, route = self._find_document(path), path
        if reply is not None:
            scope["state"]["route"] = route
        return reply

    async def _find_docs(self, name: str, scope: Scope) -> ASGIApp | None:
        if self._site.exists:
            return await self._site.find(name, scope["headers"])
        return build_docs_home(self._link_apis()) if not name else None

    def _find_document(self, path: str) -> ASGIApp | None:
        if path.startswith(ASSETS):
            return self._assets().get(path)
        if path in {"/docs", "/docs/api", "/docs/api/", "/openapi.json"}:
            return self._native().get(path)
        folder, _, name = path.rpartition("/")
        name = name.removesuffix(".json") if folder == "/openapi" else name
        known = folder in {"/docs", "/docs/api", "/openapi"} and name in self._dialects
        return self._dialect(name).get(path) if known else None

    def _link_apis(self) -> dict[str, str]:
        apis = {f"/docs/api/{name}": f"API of {dialect.title}" for name, dialect in self._dialects.items()}
        return {"/docs/api": "API"} | apis

    def _build_home(self) -> Reply:
        docs = {"/docs/": "Documentation"} | self._link_apis() if self._has_docs else {}
        return build_home(docs | {"/healthz": "Health"}, with_auth=self._settings.serve.auth)

    def _build_native(self) -> dict[str, Reply]:
        document = build_openapi(self._operations, with_auth=self._settings.serve.auth)
        links = {"/docs/": "Documentation"} | self._link_apis()
        del links["/docs/api"]
        page = build_api_page(document, "/openapi.json", links, explain_codes())
        return {
            "/openapi.json": _json(document),
            "/docs/api": page,
            "/docs/api/": redirect("/docs/api"),
            "/docs": redirect("/docs/api"),
        }

    def _build_dialect(self, name: str) -> dict[str, Reply]:
        is_open = getattr(self._settings.dialects, name).open
        document = build_dialect_openapi(self._dialects[name], with_auth=self._settings.serve.auth and not is_open)
        file, page = f"/openapi/{name}.json", f"/docs/api/{name}"
        links = {"/docs/": "Documentation", "/docs/api": "Warren's own API"}
        return {
            file: _json(document),
            page: build_api_page(document, file, links, {}),
            f"/docs/{name}": redirect(page),
        }


def _is_ours(name: str, dialects: Iterable[str]) -> bool:
    """Whether an address below `/docs/` belongs to an API page and not to the site."""
    return name == "api" or name.startswith("api/") or name in dialects


def _json(document: dict[str, Any]) -> Reply:
    return Reply(orjson.dumps(document), 200, ((b"content-type", b"application/json"),))


async def _live(receive: Receive, send: Send) -> None:
    """Answer the lifespan events. The caller of `build_app` opens and closes the service."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
