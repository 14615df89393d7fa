"""What the indexes together have of a project, and which index has which file."""

from __future__ import annotations

import hashlib
import os
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import anyio
from anyio import to_thread

from warren.core.packages import npm as package_npm
from warren.core.packages import python as package_python
from warren.core.packages.fetch import MAX_PAGE, Unfetched

if TYPE_CHECKING:
    from warren.core.packages.pages import Page, Pages, Turn
    from warren.core.packages.python import File
    from warren.core.packages.sources import PackageSources, Source
    from warren.core.packages.store import PackageStore

    _Said = tuple[list[File], str, bool]
    """Files, a stamp that changes with them, and whether the index could not be asked again."""

_FRESH_S = 60.0
_KEPT_S = 7 * 86_400.0
"""After this long without an answer, an index may have the project."""
_MOST = 4096


@dataclass(frozen=True, slots=True)
class Project:
    """The pages of a project, in the order of the indexes."""

    pages: list[tuple[Source, list[File]]]
    stamp: str
    is_stale: bool

    def merge(self) -> list[File]:
        """Return the files of all pages. A project may have thousands: call it in a thread."""
        merged: dict[str, File] = {}
        for _, files in self.pages:
            for file in files:
                # As pip does: of two files with one name, the earlier index wins.
                merged.setdefault(file["name"], file)
        return list(merged.values())

    def find(self, name: str) -> tuple[File, Source] | None:
        """Return the file of that name and its index."""
        for source, files in self.pages:
            for file in files:
                if file["name"] == name:
                    return file, source
        return None


class Catalog:
    """Queries the indexes."""

    def __init__(self, sources: PackageSources, pages: Pages, store: PackageStore) -> None:
        self._sources = sources
        self._pages = pages
        self._missing = NegativeCache(store, sources.page_s)

    async def python(self, project: str, turn: Turn) -> Project:
        """Merge the pages of the Python indexes. Raises Unfetched and Overloaded."""
        said: list[_Said | None] = [None] * len(self._sources.python)
        failures: list[Unfetched] = []
        missing: list[Source] = []

        async def ask(at: int, source: Source) -> bool:
            """Whether the index has the project, or may have it and does not answer."""
            if self._missing.is_fresh(source, project):
                return False
            try:
                said[at] = await self._ask(source, project, turn)
            except Unfetched as error:
                if error.is_missing:
                    missing.append(source)
                    return False
                if error.is_down and await self._missing.was(source, project):
                    return False
                failures.append(error)
            return True

        async with anyio.create_task_group() as tasks:
            is_found = False
            for at, source in enumerate(self._sources.python):
                if self._sources.is_merged or source.is_links:
                    tasks.start_soon(ask, at, source)
                elif not is_found:
                    # In order: the indexes after the one that counts do not learn the name.
                    is_found = await ask(at, source)
        pages = [(source, page[0]) for source, page in zip(self._sources.python, said, strict=True) if page and page[0]]
        if not pages:
            raise failures[0] if failures else Unfetched(f"no package index has {project}", is_missing=True)
        for source in missing:
            if source.path is None:
                await self._missing.remember(source, project)
        stamp = hashlib.sha256("\n".join(page[1] if page else "" for page in said).encode()).hexdigest()[:32]
        return Project(pages, stamp, bool(failures) or any(page[2] for page in said if page))

    async def npm(self, name: str, turn: Turn) -> tuple[Page, Source]:
        """Return the registry's page of a package. Raises Unfetched and Overloaded."""
        source = self._sources.npm_scopes.get(name.partition("/")[0], self._sources.npm)
        if source is None or source.path is not None:
            raise Unfetched("there is no npm registry here: the operator names one in packages.npm_registry")
        url = source.url + quote(name, safe="@")
        headers = {"Accept": package_npm.ACCEPT}
        return await self._pages.get(url, source, headers, package_npm.parse_page, turn), source

    async def _ask(self, source: Source, project: str, turn: Turn) -> _Said:
        if source.path is not None:
            files = await to_thread.run_sync(_read_local, source, project)
            if not files:
                raise Unfetched("the local package index has no such project", is_missing=True)
            return files, "\n".join(sorted(f"{file['name']}{file['sha256']}" for file in files)), False
        headers = {"Accept": package_python.ACCEPT}
        if source.is_links:
            page = await self._pages.get(source.url, source, headers, package_python.parse_page, turn)
            return package_python.choose(page.content, project), page.stamp, page.is_stale

        def parse(url: str, kind: str, body: bytes) -> list[File]:
            # Filtered before it is cached: a project may have thousands of files.
            return package_python.choose(package_python.parse_page(url, kind, body), project)

        page = await self._pages.get(f"{source.url}{project}/", source, headers, parse, turn)
        return page.content, page.stamp, page.is_stale


def _read_local(source: Source, project: str) -> list[File]:
    path = source.path
    assert path is not None
    if os.path.isfile(path):
        return package_python.choose(_read_page(path), project)
    if source.is_links:
        return package_python.choose(package_python.list_folder(path), project)
    page = os.path.join(path, project, "index.html")
    if os.path.isfile(page):
        return package_python.choose(_read_page(page), project)
    return package_python.choose(package_python.list_folder(os.path.join(path, project)), project)


def _read_page(path: str) -> list[File]:
    try:
        with open(path, "rb") as file:
            body = file.read(MAX_PAGE + 1)
    except OSError as exc:
        raise Unfetched("a page of the local package index cannot be read") from exc
    if len(body) > MAX_PAGE:
        raise Unfetched(f"a page of the local package index has more than {MAX_PAGE >> 20} MiB")
    return package_python.parse_page(f"file://{quote(path)}", "text/html", body)


class NegativeCache:
    """Which indexes lack which projects, so that an index need not be asked, or be up, each time.

    It remembers for a short time in memory, and for days on the disk, and only projects that another index has: names
    that a sandbox makes up are never written.
    """

    def __init__(self, store: PackageStore, page_s: float) -> None:
        self._store = store
        self._fresh_s = min(_FRESH_S, page_s)
        self._fresh: OrderedDict[str, float] = OrderedDict()

    def is_fresh(self, source: Source, project: str) -> bool:
        """Whether the index lacked the project recently."""
        return self._fresh.get(_name(source, project), 0.0) > time.monotonic()

    async def was(self, source: Source, project: str) -> bool:
        """Whether the index lacked the project when it last answered. Raises StoreError."""
        raw = await to_thread.run_sync(self._store.read_page, _name(source, project))
        try:
            return raw is not None and 0 <= time.time() - float(raw) < _KEPT_S
        except ValueError:
            return False

    async def remember(self, source: Source, project: str) -> None:
        """Remember that the index lacks a project that another has. Raises StoreError."""
        name = _name(source, project)
        self._fresh[name] = time.monotonic() + self._fresh_s
        self._fresh.move_to_end(name)
        if len(self._fresh) > _MOST:
            self._fresh.popitem(last=False)
        await to_thread.run_sync(self._store.write_page, name, str(time.time()).encode())


def _name(source: Source, project: str) -> str:
    return hashlib.sha256(f"missing\n{source.url}\n{project}".encode()).hexdigest()
