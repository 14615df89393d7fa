"""Package index of the sandboxes: `packages.warren.internal`, answered by the service itself.

Rule 1: a request can only name what an index of the operator's has. It becomes part of a URL only as a checked name.
Rule 2: no input of a sandbox is stored. No file is shared without a hash, or with a wrong one.
Rule 3: a file that was downloaded once is available when the index is not.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import anyio
from anyio import to_thread

from warren.core.concurrency.fair_queue import FairQueue
from warren.core.egress.internal_hosts import InnerAnswer
from warren.core.packages import npm
from warren.core.packages import python as package_python
from warren.core.packages.bodies import Body, Rendered, build_head, read_file
from warren.core.packages.catalog import Catalog
from warren.core.packages.downloads import Downloads, Wanted
from warren.core.packages.fetch import Fetched, Fetcher, Unfetched
from warren.core.packages.names import normalise
from warren.core.packages.pages import Pages, Turn
from warren.core.packages.python import Target
from warren.core.packages.sources import Digest, path_of
from warren.core.packages.store import PackageStore
from warren.domain.egress import PACKAGES_HOST
from warren.domain.errors import Error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from anyio.abc import TaskGroup

    from warren.core.egress.internal_hosts import InnerRequest
    from warren.core.packages.sources import PackageSources, Source
    from warren.core.telemetry.counters import Counters

_MAX_TARGET = 2000
_LARGE_S = 60.0
"""Seconds that a request waits for its turn to load a large page."""
_FILES = f"http://{PACKAGES_HOST}/pypi/files"
_NPM = f"http://{PACKAGES_HOST}/npm"
_KEEP = {"cache-control": "max-age=31536000, immutable"}
_ASK_AGAIN = {"cache-control": "max-age=60"}
_UNKNOWN = "there is nothing here: packages are at /pypi/simple/NAME/ and /npm/NAME"


class PackageIndex:
    """Answers requests of sandboxes. Downloads run in the task group of the owner; the disk is first read on demand."""

    def __init__(self, load: Callable[[], PackageSources], folder: str, tasks: TaskGroup, observer: Counters) -> None:
        """`load` is called once, in a thread, at the first request."""
        self._observer = observer
        self._load = load
        self._folder = folder
        self._tasks = tasks
        self._opening = anyio.Lock()
        self._is_open = False

    async def aclose(self) -> None:
        """Cancel the downloads; their tasks end soon after."""
        if self._is_open:
            self._downloads.close()
            with anyio.CancelScope(shield=True):
                await self._fetcher.aclose()

    async def __call__(self, request: InnerRequest) -> InnerAnswer:
        """Answer a request. Failures are responses too."""
        try:
            if request.method not in {"GET", "HEAD"}:
                return _say(405, "packages are fetched with GET: nothing can be put here")
            await self._open()
            answer = await self._route(request, _split(request.target))
        except Unfetched as error:
            return _say(404 if error.is_missing else 502, f"{error}.")
        except Error as error:
            return _say(error.status if error.status in {404, 503} else 502, f"{error}.")
        if request.method == "HEAD" and isinstance(answer.body, Body):
            await answer.body.aclose()
        return InnerAnswer(status=answer.status, headers=answer.headers) if request.method == "HEAD" else answer

    async def _open(self) -> None:
        if self._is_open:
            return
        async with self._opening:
            if self._is_open:
                return
            sources = await to_thread.run_sync(self._load)
            self._store = PackageStore(self._folder, sources.cache_bytes)
            await to_thread.run_sync(self._store.open)
            self._fetcher = Fetcher(sources)
            self._downloads = Downloads(self._store, sources.file_bytes, self._tasks)
            self._catalog = Catalog(sources, Pages(self._store, self._fetcher, sources.page_s), self._store)
            self._rendered = Rendered(self._folder)
            self._large = FairQueue("large pages of package indexes", slots=2, waiting=1024, wait_s=_LARGE_S)
            self._is_open = True

    async def _route(self, request: InnerRequest, parts: list[str] | None) -> InnerAnswer:
        match parts:
            case ["pypi", *rest]:
                return await self._route_python(request, rest)
            case ["npm", *rest]:
                return await self._route_npm(request, rest)
        return _say(404, _UNKNOWN)

    async def _route_python(self, request: InnerRequest, parts: list[str]) -> InnerAnswer:
        match parts:
            case ["simple", name] if (project := normalise(name)) is not None:
                return await self._python_page(request, project, None)
            case ["for", python, "simple", name] if (project := normalise(name)) is not None:
                # An unknown Python gets the unfiltered page.
                return await self._python_page(request, project, Target.parse(python))
            case ["files", project, digest, name] if normalise(project) == project:
                return await self._python_file(request, project, digest, name)
        return _say(404, _UNKNOWN)

    async def _route_npm(self, request: InnerRequest, parts: list[str]) -> InnerAnswer:
        match parts:
            case ["-", "ping"]:
                return InnerAnswer(status=200, headers={"content-type": "application/json"}, body=b"{}")
            case [*package, "-", file] if npm.NAME.fullmatch("/".join(package)):
                return await self._npm_file(request, "/".join(package), file)
            case [*package] if npm.NAME.fullmatch("/".join(package)):
                return await self._npm_page(request, "/".join(package))
        return _say(404, _UNKNOWN)

    async def _python_page(self, request: InnerRequest, project: str, target: Target | None) -> InnerAnswer:
        is_json = "json" in request.headers.get("accept", "")
        render = package_python.render_json if is_json else package_python.render_html
        kind = package_python.JSON if is_json else "text/html"
        with self._turn(request) as turn:
            page = await self._catalog.python(project, turn)

            def write() -> bytes:
                files = page.merge()
                return render(project, files if target is None else target.keep(project, files), _FILES)

            key = ("pypi", str(target or ""), project, kind, page.stamp)
            return await self._page(request, key, kind, write, is_stale=page.is_stale)

    async def _npm_page(self, request: InnerRequest, name: str) -> InnerAnswer:
        with self._turn(request) as turn:
            page, _ = await self._catalog.npm(name, turn)
            key = ("npm", name, "json", page.stamp)
            body = lambda: npm.render(name, page.content, _NPM)  # noqa: E731 - it is called once, or not at all
            return await self._page(request, key, "application/json", body, is_stale=page.is_stale)

    @contextlib.contextmanager
    def _turn(self, request: InnerRequest) -> Iterator[Turn]:
        turn = Turn(self._large, request.owner)
        try:
            yield turn
        finally:
            turn.leave()

    async def _page(
        self, request: InnerRequest, key: tuple[str, ...], kind: str, render: Callable[[], bytes], *, is_stale: bool
    ) -> InnerAnswer:
        etag = f'"{key[-1]}"'
        headers = {"content-type": kind, "etag": etag, "vary": "accept", **_ASK_AGAIN}
        if is_stale:
            headers["warning"] = '110 - "the package index cannot be reached"'
        if request.headers.get("if-none-match") == etag:
            return InnerAnswer(status=304, headers=headers)
        page = await self._rendered.get(key, render)
        return InnerAnswer(status=200, headers={**headers, "content-length": str(page.size)}, body=page.body)

    async def _python_file(self, request: InnerRequest, project: str, digest: str, name: str) -> InnerAnswer:
        is_metadata = name.endswith(".metadata")
        with self._turn(request) as turn:
            found = (await self._catalog.python(project, turn)).find(name.removesuffix(".metadata"))
        if found is None or (found[0]["sha256"] or package_python.UNHASHED) != digest:
            return _say(404, f"{project} has no such file: ask for its page again")
        file, source = found
        if not is_metadata:
            known = Digest("sha256", file["sha256"]) if file["sha256"] else None
            return await self._file(request, Wanted(name=name, url=file["url"], digest=known), source)
        if not file.get("metadata"):
            return _say(404, "the index has no metadata of it")
        wanted = Wanted(name=name, url=f"{file['url']}.metadata", digest=Digest("sha256", file["metadata"]))
        return await self._file(request, wanted, source)

    async def _npm_file(self, request: InnerRequest, name: str, file: str) -> InnerAnswer:
        with self._turn(request) as turn:
            page, source = await self._catalog.npm(name, turn)
            version = npm.find_file(page.content, file)
            del page
        if version is None:
            return _say(404, f"{name} has no such file: ask for its page again")
        digest = npm.read_integrity(version["integrity"])
        weak = ("sha1", version["shasum"]) if version["shasum"] and digest is None else None
        return await self._file(request, Wanted(name=file, url=version["url"], digest=digest, weak=weak), source)

    async def _file(self, request: InnerRequest, wanted: Wanted, source: Source) -> InnerAnswer:
        local = path_of(wanted.url)
        if local is not None and source.path is None:
            raise Unfetched("the package index names a file of this machine, which only a local index may")
        held = contextlib.AsyncExitStack()
        kept = None if wanted.digest is None else await to_thread.run_sync(self._store.find, wanted.digest)
        if kept is None and local is not None and wanted.digest is None and wanted.weak is None:
            kept = await to_thread.run_sync(_open_local, local)
        if kept is not None:
            if request.method == "GET":
                self._observer.package_file("cache")
            held.callback(os.close, kept)
            status, start, stop, headers = build_head(request, os.fstat(kept).st_size, _name(wanted))
            return InnerAnswer(status=status, headers=headers, body=Body(read_file(kept, start, stop or 0), held))
        return await self._download(request, wanted, source, held)

    async def _download(
        self, request: InnerRequest, wanted: Wanted, source: Source, held: contextlib.AsyncExitStack
    ) -> InnerAnswer:
        async with contextlib.AsyncExitStack() as opening:
            download = await opening.enter_async_context(
                self._downloads.join(wanted, request.owner, lambda: self._fetch(wanted.url, source))
            )
            await download.wait_begun()
            status, start, stop, headers = build_head(request, download.size, _name(wanted))
            held.push_async_callback(opening.pop_all().aclose)
        return InnerAnswer(status=status, headers=headers, body=Body(download.read(start, stop), held))

    def _fetch(self, url: str, source: Source) -> AbstractAsyncContextManager[Fetched]:
        # Counted here: a HEAD fetches the whole file too, which the next GET finds in the cache.
        self._observer.package_file("index")
        local = path_of(url)
        if local is not None:
            return _fetch_local(url, local)
        # With a content coding, neither size nor hash would match.
        return self._fetcher.get(url, source, {"Accept": "*/*", "Accept-Encoding": "identity"})


@contextlib.asynccontextmanager
async def _fetch_local(url: str, path: str) -> AsyncIterator[Fetched]:
    file = await to_thread.run_sync(_open_local, path)
    try:
        size = os.fstat(file).st_size
        yield Fetched(200, url, {"content-length": str(size)}, read_file(file, 0, size))
    finally:
        os.close(file)


def _open_local(path: str) -> int:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        raise Unfetched("a file of the local package index cannot be read", is_missing=True) from exc
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Unfetched("a file of the local package index is not a regular file", is_missing=True)
    return file


def _split(target: str) -> list[str] | None:
    """Split a path; None for paths that no client of an index requests."""
    path = target.partition("?")[0]
    if len(path) > _MAX_TARGET or not path.startswith("/"):
        return None
    # The slash of a scoped npm name may be percent-encoded; it separates two parts all the same.
    parts = unquote(path, errors="replace")[1:].removesuffix("/").split("/")
    return None if any(part in {"", ".", ".."} or not part.isprintable() for part in parts) else parts


def _name(wanted: Wanted) -> dict[str, str]:
    if wanted.digest is None:
        return {"cache-control": "no-store"}
    return {**_KEEP, "etag": f'"{quote(str(wanted.digest))}"'}


def _say(status: int, text: str) -> InnerAnswer:
    body = f"{text}\n".encode("utf-8", "replace")
    return InnerAnswer(
        status=status,
        headers={"content-type": "text/plain; charset=utf-8", "content-length": str(len(body))},
        body=body,
    )
