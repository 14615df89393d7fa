"""What all indexes together say of one project, and which of them said it."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import anyio
from anyio import to_thread

from warren.core import package_npm, package_python
from warren.core.package_fetch import MAX_PAGE, Unfetched

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.core.package_pages import Page, Pages, Turn
    from warren.core.package_python import File
    from warren.core.package_sources import PackageSources, Source

_RENDERED_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Project:
    """What the indexes have of a project, the first of them first."""

    pages: list[tuple[Source, list[File]]]
    stamp: str
    is_stale: bool

    def merge(self) -> list[File]:
        """Return the files of all. A project may have thousands: this is work for a thread."""
        merged: dict[str, File] = {}
        for _, files in self.pages:
            for file in files:
                # As pip does: of two files with one name, that of the earlier index.
                merged.setdefault(file["name"], file)
        return list(merged.values())

    def find(self, name: str) -> tuple[File, Source] | None:
        """Find the file that is meant by a name, and the index that has it."""
        for source, files in self.pages:
            for file in files:
                if file["name"] == name:
                    return file, source
        return None


class Catalog:
    """Asks the indexes."""

    def __init__(self, sources: PackageSources, pages: Pages) -> None:
        self._sources = sources
        self._pages = pages

    async def python(self, project: str, turn: Turn) -> Project:
        """Put together what the Python indexes have. Raises Unfetched and Overloaded."""
        said: list[tuple[list[File], str, bool] | None] = [None] * len(self._sources.python)
        failures: list[Unfetched] = []

        async def ask(at: int, source: Source) -> None:
            try:
                said[at] = await self._ask(source, project, turn)
            except Unfetched as error:
                if not error.is_missing:
                    failures.append(error)

        async with anyio.create_task_group() as tasks:
            for at, source in enumerate(self._sources.python):
                tasks.start_soon(ask, at, source)
        pages = [(source, page[0]) for source, page in zip(self._sources.python, said, strict=True) if page and page[0]]
        if not pages:
            raise failures[0] if failures else Unfetched(f"no package index has {project}", is_missing=True)
        stamp = hashlib.sha256("\n".join(page[1] if page else "" for page in said).encode()).hexdigest()[:32]
        return Project(pages, stamp, bool(failures) or any(page[2] for page in said if page))

    async def npm(self, name: str, turn: Turn) -> tuple[Page, Source]:
        """Return what the registry says of a package. Raises Unfetched and Overloaded."""
        source = self._sources.npm
        if source is None or source.path is not None:
            raise Unfetched("there is no npm registry here: the operator names one in packages.npm_registry")
        url = source.url + quote(name, safe="@")
        headers = {"Accept": package_npm.ACCEPT}
        return await self._pages.get(url, source, headers, package_npm.parse_page, turn), source

    async def _ask(self, source: Source, project: str, turn: Turn) -> tuple[list[File], str, bool]:
        if source.path is not None:
            files = await to_thread.run_sync(_read_local, source, project)
            return files, "\n".join(sorted(f"{file['name']}{file['sha256']}" for file in files)), False
        headers = {"Accept": package_python.ACCEPT}
        if source.is_links:
            page = await self._pages.get(source.url, source, headers, package_python.parse_page, turn)
            return package_python.choose(page.content, project), page.stamp, page.is_stale

        def parse(url: str, kind: str, body: bytes) -> list[File]:
            # Here, and not each time: a project may have thousands.
            return package_python.choose(package_python.parse_page(url, kind, body), project)

        page = await self._pages.get(f"{source.url}{project}/", source, headers, parse, turn)
        return page.content, page.stamp, page.is_stale


class Rendered:
    """Pages as they are sent, the last few of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], bytes] = OrderedDict()
        self._bytes = 0
        self._writing = anyio.Semaphore(2)

    async def get(self, key: tuple[str, ...], render: Callable[[], bytes]) -> bytes:
        """Return a page that was written under this key, or write it."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        async with self._writing:
            # Whoever waited may find it written by now.
            found = self._kept[key] if key in self._kept else await to_thread.run_sync(render)
        if key not in self._kept:
            self._kept[key] = found
            self._bytes += len(found)
        while self._bytes > _RENDERED_BYTES and len(self._kept) > 1:
            self._bytes -= len(self._kept.popitem(last=False)[1])
        return found


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
