"""One deck in one sandbox: its input, the progress that the program inside reports, and its output."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from warren.core.files.files import pack_files
from warren.core.policy.policy import EDITABLE, PICTURES
from warren.domain.errors import Error, InvalidRequest, RenderFailed, TooLarge
from warren.domain.values import new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warren.core.agent.files import Content
    from warren.core.policy.policy import RenderPolicy
    from warren.core.slides.browser_pool import BrowserSandbox

_FOLDER = "deck"
_PART = r"(?!\.{1,2}(/|$))[A-Za-z0-9._-]{1,128}"
_NAME = re.compile(rf"{_PART}(/{_PART}){{0,7}}")
REASONS = frozenset(
    {
        *("bad_job", "no_slides", "too_many_slides", "slide_size", "output_too_large", "page_changed", "page_left"),
        *("page_crashed", "page_hung", "load_failed", "timeout", "browser_missing", "failed"),
    }
)
"""Reasons of failed renders, as the program inside reports them, and `memory`, which the sandbox reports."""
_MAX_RESULT = 4 << 20
_MAX_WORDS = 500
_MAX_WHY = 200
_MAX_MISSING = 20
_MAX_ERRORS = 10
_MAX_PARTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRender:
    """A request to render a deck."""

    html: str = field(repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """By name; the deck finds them under `assets/`."""
    version: str | None = None
    """`v1` pictures, `v2` editable; None is the operator's choice."""
    name: str = "presentation"
    """Of the presentation, without its extension."""

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        return len(self.html) + sum(map(len, self.files.values()))

    def check(self, policy: RenderPolicy) -> None:
        """Raise InvalidRequest and TooLarge for a deck that cannot be rendered."""
        if self.version not in {None, PICTURES, EDITABLE}:
            raise InvalidRequest(f"version must be {PICTURES} (pictures) or {EDITABLE} (editable)")
        if not self.html.strip():
            raise InvalidRequest("html is empty: send a page with elements of the class slide")
        if len(self.html) > policy.html_chars:
            raise TooLarge(f"html is too large (>{policy.html_chars} characters)")
        if len(self.files) > policy.files:
            raise TooLarge(f"a deck may have {policy.files} assets, and these are {len(self.files)}: leave some out")
        for name, content in self.files.items():
            if not _NAME.fullmatch(name):
                raise InvalidRequest(f"a file is called {name[:130]!r}: use letters, digits, dots, dashes, underscores")
            if any(str(folder) in self.files for folder in PurePosixPath(name).parents):
                raise InvalidRequest(f"assets: {name[:130]!r} is in a folder that is a file among them")
            if len(content) > policy.file_bytes:
                raise TooLarge(f"input file '{name}' exceeds max size of {policy.file_bytes} bytes")
        if sum(map(len, self.files.values())) > policy.files_bytes:
            raise TooLarge(f"input_files exceed max combined size of {policy.files_bytes} bytes")


@dataclass(frozen=True, slots=True)
class RenderStep:
    """Progress of a render."""

    phase: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Degraded:
    """A slide that was to be editable and became a picture."""

    slide: int
    why: str


@dataclass(frozen=True, slots=True)
class Findings:
    """Problems that the browser found in a page, whatever the outcome."""

    missing: tuple[tuple[str, int], ...] = ()
    """Addresses that the page requested and that do not exist in a render, with counts."""
    script_errors: tuple[str, ...] = ()


class DeckFailed(RenderFailed):
    """A page that cannot become a presentation."""

    def __init__(self, message: str, *, reason: str, findings: Findings) -> None:
        super().__init__(message, reason=reason)
        self.findings = findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The result: an archive with the presentation and a picture of each slide."""

    id: str
    version: str
    slides: int
    degraded: tuple[Degraded, ...] = ()
    findings: Findings = Findings()
    content: Content
    """Of the archive; the opener closes it."""


async def conduct(
    browser: BrowserSandbox, new: NewRender, policy: RenderPolicy, on_step: Callable[[RenderStep], None]
) -> Rendered:
    """Render a deck by the protocol of `render/job.py`. Raises RenderFailed, also as DeckFailed."""
    version = new.version or policy.version
    job = {
        "name": new.name,
        "editable": version == EDITABLE,
        "max_slides": policy.slides,
        "max_output_bytes": policy.output_bytes,
        "timeout_s": policy.timeout_s,
    }
    await browser.agent.unpack(_FOLDER, await to_thread.run_sync(_pack, new, job))
    await browser.tell(f"{_FOLDER}/job.json")
    async for said in browser.says:
        if said.get("type") == "progress":
            on_step(RenderStep(_words(said, "stage"), _count(said, "done"), _count(said, "of")))
        elif said.get("type") == "done":
            break
    result = await _read_result(browser)
    if result.get("ok") is not True:
        raise _failure(result)
    return Rendered(
        id=new_id("rnd"),
        version=version,
        slides=_count(result, "slides"),
        degraded=_degraded(result, policy.slides),
        findings=_findings(result),
        content=await _open(browser, policy),
    )


async def _read_result(browser: BrowserSandbox) -> dict[str, Any]:
    try:
        result = json.loads(await browser.agent.read_bytes(f"{_FOLDER}/result.json", _MAX_RESULT))
    except (Error, ValueError, RecursionError) as error:
        raise RenderFailed("the renderer left no result that can be read") from error
    return result if isinstance(result, dict) else {}


def _failure(result: Mapping[str, Any]) -> DeckFailed:
    said = result.get("error")
    error = said if isinstance(said, dict) else {}
    code = _words(error, "code")
    return DeckFailed(
        _words(error, "message") or "rendering failed",
        reason=code if code in REASONS else "failed",
        findings=_findings(result),
    )


async def _open(browser: BrowserSandbox, policy: RenderPolicy) -> Content:
    try:
        content = await browser.agent.open_file(f"{_FOLDER}/out.zip", follow=False)
    except Error as error:
        raise RenderFailed("the renderer left no archive") from error
    if content.length > policy.output_bytes:
        content.close()
        raise RenderFailed(f"render output exceeds max size of {policy.output_bytes} bytes", reason="output_too_large")
    return content


def _pack(new: NewRender, job: Mapping[str, Any]) -> bytes:
    files = {f"assets/{name}": content for name, content in new.files.items()}
    files["index.html"] = new.html.encode("utf-8", "replace")
    return pack_files({**files, "job.json": json.dumps(job).encode()})


def _count(said: Mapping[str, Any], name: str) -> int:
    value = said.get(name)
    # Not `isinstance`: true and false would pass as numbers.
    return value if type(value) is int and 0 <= value <= _MAX_PARTS else 0


def _words(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    return "".join(each for each in value[:_MAX_WORDS] if each.isprintable()) if isinstance(value, str) else ""


def _degraded(said: Mapping[str, Any], most: int) -> tuple[Degraded, ...]:
    """Parse which slides are pictures: each once, and no more than a deck may have."""
    found: dict[int, str] = {}
    for each in _list(said, "fallbacks"):
        number = _count(each, "slide") if isinstance(each, dict) else 0
        if 0 < number <= most:
            found.setdefault(number, _words(each, "reason")[:_MAX_WHY])
    return tuple(Degraded(number, found[number]) for number in sorted(found))


def _findings(said: Mapping[str, Any]) -> Findings:
    """Parse the problems of the page: each address once, within the limits of what is stored."""
    found: dict[str, int] = {}
    for each in _list(said, "missing"):
        address = _words(each, "url")[:_MAX_WHY] if isinstance(each, dict) else ""
        if address and len(found) < _MAX_MISSING:
            found.setdefault(address, max(1, _count(each, "count")))
    errors = (_words({"said": each}, "said")[:_MAX_WHY] for each in _list(said, "script_errors"))
    return Findings(tuple(found.items()), tuple(dict.fromkeys(filter(None, errors)))[:_MAX_ERRORS])


def _list(said: Mapping[str, Any], name: str) -> list[Any]:
    listed = said.get(name)
    return listed[:_MAX_PARTS] if isinstance(listed, list) else []
