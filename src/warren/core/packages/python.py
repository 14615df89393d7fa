"""Python index pages: PEP 503 and 691 parsed, filtered, and rendered with addresses of the service."""

from __future__ import annotations

import functools
import html
import os
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

import orjson
from packaging import tags

from warren.core.packages.fetch import Unfetched
from warren.core.packages.names import normalise
from warren.core.packages.sources import build_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

JSON = "application/vnd.pypi.simple.v1+json"
HTML = "application/vnd.pypi.simple.v1+html"
ACCEPT = f"{JSON}, {HTML};q=0.2, text/html;q=0.1"
UNHASHED = "unhashed"
"""In the service's addresses, the placeholder for a hash that the index does not name."""
MAX_FILES = 200_000
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}")
_ENDINGS = (".whl", ".tar.gz", ".zip", ".tar.bz2", ".egg", ".tgz")

File = dict[str, Any]
"""`name`, `url`, `sha256` or "", and fields of the index: `requires`, `yanked`, `metadata` (hash), `size`, `time`."""
_NAME = re.compile(r"cp3(\d{1,2})-(x86_64|aarch64|armv7l|i686|ppc64le|riscv64|s390x)")
_LINUX = ("linux", "manylinux", "musllinux")
_COMPRESSED = 16
"""Dots in a tag. A few dozen of them expand to tens of thousands of tags; such a wheel is kept unread."""


def parse_page(url: str, kind: str, body: bytes) -> list[File]:
    """Parse the page of a project, or a page of links. Raises Unfetched."""
    if "json" in kind.partition(";")[0]:
        return _parse_json(url, body)
    return _parse_html(url, body)


def list_folder(path: str) -> list[File]:
    """List the files of a local folder as a page does."""
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return []
    here = f"file://{quote(os.path.abspath(path))}"
    return [_file(name, f"{here}/{quote(name)}") for name in names if _is_package(name)]


def choose(files: Iterable[File], project: str) -> list[File]:
    """Return the files of one project: a page of links has those of all."""
    return [file for file in files if find_project(file["name"]) == project]


def render_json(project: str, files: list[File], base: str) -> bytes:
    """Render the page of a project as PEP 691 JSON."""
    shown = []
    for file in files:
        entry: dict[str, Any] = {"filename": file["name"], "url": _address(base, project, file)}
        entry["hashes"] = {"sha256": file["sha256"]} if file["sha256"] else {}
        if file.get("requires"):
            entry["requires-python"] = file["requires"]
        if file.get("yanked"):
            entry["yanked"] = file["yanked"]
        if file.get("metadata"):
            entry["core-metadata"] = entry["data-dist-info-metadata"] = {"sha256": file["metadata"]}
        if file.get("size") is not None:
            entry["size"] = file["size"]
        if file.get("time"):
            entry["upload-time"] = file["time"]
        shown.append(entry)
    meta = {"api-version": "1.1" if all("size" in each for each in shown) else "1.0"}
    versions = sorted({found for file in files if (found := find_version(file["name"], project))})
    return orjson.dumps({"meta": meta, "name": project, "files": shown, "versions": versions})


def render_html(project: str, files: list[File], base: str) -> bytes:
    """Render the page of a project as PEP 503 HTML."""
    lines = ["<!DOCTYPE html><html><head><meta name='pypi:repository-version' content='1.0'></head><body>"]
    for file in files:
        attributes = ""
        if file.get("requires"):
            attributes += f' data-requires-python="{html.escape(file["requires"])}"'
        if file.get("yanked"):
            why = file["yanked"] if isinstance(file["yanked"], str) else ""
            attributes += f' data-yanked="{html.escape(why)}"'
        if file.get("metadata"):
            attributes += f' data-core-metadata="sha256={file["metadata"]}"'
        fragment = f"#sha256={file['sha256']}" if file["sha256"] else ""
        url = html.escape(_address(base, project, file) + fragment)
        lines.append(f'<a href="{url}"{attributes}>{html.escape(file["name"])}</a><br>')
    return "\n".join([*lines, "</body></html>"]).encode()


def find_project(filename: str) -> str | None:
    """Return the project of a file, from its name."""
    for ending in _ENDINGS:
        if filename.endswith(ending):
            stem = filename.removesuffix(ending)
            name = stem.partition("-")[0] if ending in {".whl", ".egg"} else stem.rpartition("-")[0]
            return normalise(name)
    return None


def find_version(filename: str, project: str) -> str | None:
    """Return the version of a file, from its name."""
    for ending in _ENDINGS:
        if filename.endswith(ending):
            parts = filename.removesuffix(ending).split("-")
            if ending in {".whl", ".egg"}:
                return parts[1] if len(parts) > 1 else None
            name, _, version = filename.removesuffix(ending).rpartition("-")
            return version if normalise(name) == project else None
    return None


def _address(base: str, project: str, file: File) -> str:
    return f"{base}/{project}/{file['sha256'] or UNHASHED}/{quote(file['name'])}"


def _is_package(name: str) -> bool:
    return _FILE.fullmatch(name) is not None and name.endswith(_ENDINGS)


def _file(name: str, url: str, sha256: str = "", **more: Any) -> File:
    digest = build_digest("sha256", sha256)
    return {"name": name, "url": url, "sha256": digest.value if digest else "", **more}


def _parse_json(url: str, body: bytes) -> list[File]:
    try:
        entries = orjson.loads(body)["files"]
        found = list(_read_entries(url, entries[:MAX_FILES]))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError) as exc:
        raise Unfetched("the package index sent a page that cannot be parsed") from exc
    return found


def _read_entries(url: str, entries: list[dict[str, Any]]) -> Iterator[File]:
    for entry in entries:
        name = entry["filename"]
        if not isinstance(name, str) or not _is_package(name):
            continue
        metadata = entry.get("core-metadata", entry.get("data-dist-info-metadata"))
        yanked, size, requires = entry.get("yanked"), entry.get("size"), entry.get("requires-python")
        yield _file(
            name,
            urljoin(url, urldefrag(str(entry["url"])).url),
            str(entry.get("hashes", {}).get("sha256", "")),
            requires=requires if isinstance(requires, str) else "",
            yanked=yanked if isinstance(yanked, str | bool) else False,
            metadata=_read_hash(str(metadata.get("sha256", "")) if isinstance(metadata, dict) else ""),
            **({"size": size} if isinstance(size, int) and size >= 0 else {}),
            time=str(entry.get("upload-time") or "")[:40],
        )


def _read_hash(text: str) -> str:
    digest = build_digest("sha256", text)
    return digest.value if digest else ""


def _parse_html(url: str, body: bytes) -> list[File]:
    anchors = _Anchors(url)
    try:
        anchors.feed(body.decode("utf-8", "replace"))
        anchors.close()
    except (ValueError, AssertionError) as exc:
        raise Unfetched("the package index sent a page that cannot be parsed") from exc
    return anchors.files


class _Anchors(HTMLParser):
    """Collects the links of a page to packages."""

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._base = url
        self.files: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        href = given.get("href")
        if tag == "base" and href:
            self._base = urljoin(self._base, href)
        if tag != "a" or not href or len(self.files) >= MAX_FILES:
            return
        where, fragment = urldefrag(urljoin(self._base, href.strip()))
        name = unquote(urlsplit(where).path.rpartition("/")[2])
        if not _is_package(name):
            return
        algorithm, _, value = fragment.partition("=")
        metadata = given.get("data-core-metadata") or given.get("data-dist-info-metadata") or ""
        self.files.append(
            _file(
                name,
                where,
                value if algorithm == "sha256" else "",
                requires=given.get("data-requires-python") or "",
                yanked=(given.get("data-yanked") or True) if "data-yanked" in given else False,
                metadata=_read_hash(metadata.removeprefix("sha256=")),
            )
        )


@dataclass(frozen=True, slots=True)
class Target:
    """A CPython on Linux: its minor version, and its machine. It filters pages.

    In a large project nineteen of twenty wheels can never be installed there, and reading them takes a tenth of the
    time of an installation.
    """

    minor: int
    machine: str

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parse `cp311-x86_64`; None for anything else."""
        found = _NAME.fullmatch(name)
        return cls(int(found[1]), found[2]) if found else None

    def keep(self, project: str, files: list[File]) -> list[File]:
        """Return the files that may fit, and all files of a version without any: installers name what there is."""
        fitting = {file["name"] for file in files if self.fits(file["name"])}
        served = {find_version(name, project) for name in fitting}
        return [file for file in files if file["name"] in fitting or find_version(file["name"], project) not in served]

    def fits(self, filename: str) -> bool:
        """Whether the target may be able to install a file. Only the name of a wheel can rule that out."""
        stem = filename.removesuffix(".whl")
        before, *found = stem.rsplit("-", 3)
        if stem == filename or len(found) < 3 or "-" not in before:
            return True
        return _fits(self, stem[len(before) + 1 :])


# A page has thousands of wheels and some hundred distinct tags: each tag is expanded once.
@functools.lru_cache(maxsize=8192)
def _fits(target: Target, tag: str) -> bool:
    if tag.count(".") > _COMPRESSED:
        return True
    try:
        found = tags.parse_tag(tag)
    except ValueError:
        return True
    supported = _build_supported(target.minor)
    return any(
        (each.interpreter, each.abi, "linux" if _is_for(each.platform, target.machine) else each.platform) in supported
        for each in found
    )


def _is_for(platform: str, machine: str) -> bool:
    return platform.startswith(_LINUX) and platform.endswith(f"_{machine}")


@functools.cache
def _build_supported(minor: int) -> frozenset[tuple[str, str, str]]:
    """Return interpreter, ABI and platform of installable wheels; `linux` is every Linux of the machine."""
    version, name = (3, minor), f"cp3{minor}"
    found = list(tags.compatible_tags(version, name, ["linux"]))
    # A target does not say whether its Python has the GIL or is a debug build.
    for abi in (name, f"{name}t", f"{name}d"):
        found += tags.cpython_tags(version, [abi], ["linux"])
    return frozenset((each.interpreter, each.abi, each.platform) for each in found)
