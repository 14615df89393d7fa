"""Maps web addresses to npm packages and files. Pure; only the shape of the path matters, not the host.

Understood are the shapes of the networks that serve npm packages (`/npm/name@1.2/file`, `/name@1.2/file`), of those
with a list of their own (`/ajax/libs/name/1.2/file`, `/name/1.2/file`), and the places where projects serve themselves.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

_OTHER_NAMES = {
    "alpine": "alpinejs",
    "chartjs": "chart.js",
    "chart": "chart.js",
    "font-awesome": "@fortawesome/fontawesome-free",
    "fontawesome": "@fortawesome/fontawesome-free",
    "fontawesome-free": "@fortawesome/fontawesome-free",
    "highlight": "@highlightjs/cdn-assets",
    "highlight.js": "@highlightjs/cdn-assets",
    "cdn-release": "@highlightjs/cdn-assets",
    "animate": "animate.css",
    "prism": "prismjs",
    "plotly": "plotly.js-dist-min",
    "plotly.js": "plotly.js-dist-min",
    "plotly.js-dist": "plotly.js-dist-min",
    "plotly.js-basic-dist-min": "plotly.js-dist-min",
    "reveal": "reveal.js",
    "twitter-bootstrap": "bootstrap",
    "material-design-icons": "material-icons",
    "tailwindcss-browser": "@tailwindcss/browser",
}
"""What a list or a file calls it, and what npm does."""
_NAME = r"(?P<name>@[\w.~-]+/[\w.~-]+|[\w.~-]+)"
_FILE_ALONE = (
    r"(?:/.*)?/(?P<name>[A-Za-z]\w*(?:\.[A-Za-z]+)*?)(?:[.-](?:v?\d[\d.]*?|latest))?"
    r"(?P<file>(?:\.min|\.umd|\.bundle)*\.(?:js|css))"
)
_SHAPES = tuple(
    re.compile(shape, re.ASCII)
    for shape in (
        rf"/npm/{_NAME}(?:@[^/]*)?(?:/(?P<file>.*))?",
        r"/gh/[^/]+/(?P<name>[\w.~-]+?)(?:@[^/]*)?/(?P<file>.+)",
        rf"/ajax/libs/{_NAME}/[^/]+/(?P<file>.+)",
        rf"/(?:stable/|v\d+/|pin/)?{_NAME}@[^/]*(?:/(?P<file>.*))?",
        rf"/{_NAME}/v?\d[\w.+-]*/(?P<file>.+)",
        rf"/{_NAME}/?",
        _FILE_ALONE,
    )
)
_SELF_SERVED = (
    (re.compile(r".*/releases/v[\d.]+/(?P<file>.+)"), "@fortawesome/fontawesome-free"),
    (re.compile(r".*/bootstrap/[\d.]+/(?P<file>.+)"), "bootstrap"),
)
_FONT_SHEET = re.compile(r"/(?:css2?|icon)")
_MODULE_HOST = re.compile(r"(?:^|\.)(?:esm|skypack)\b")


def is_font_sheet(url: str) -> tuple[str, ...] | None:
    """Return the families that a style sheet of web fonts is asked for, or None if it is something else."""
    parts = urlsplit(url)
    if not _FONT_SHEET.fullmatch(parts.path):
        return None
    asked = [value for key, value in parse_qsl(parts.query) if key == "family"]
    families = [family for value in asked for family in value.split("|")]
    return tuple(family.partition(":")[0].strip() for family in families) or None


def wants_module(url: str) -> bool:
    """Return whether the response must be an ECMAScript module."""
    parts = urlsplit(url)
    return parts.path.endswith("/+esm") or bool(_MODULE_HOST.search(parts.hostname or "")) or "module" in parts.query


def guess(url: str) -> Iterator[tuple[str, str]]:
    """Yield candidates for an address, the likeliest first: a package and a file in it, or "" for its main one."""
    parts = urlsplit(url)
    path = re.sub(r"/{2,}", "/", unquote(parts.path))
    if "tailwindcss" in (parts.hostname or ""):
        yield "tailwindcss-cdn", "tailwindcss-with-all-plugins.js" if "plugins" in parts.query else "tailwindcss.js"
        return
    for pattern, package in _SELF_SERVED:
        if match := pattern.fullmatch(path):
            yield package, match["file"]
    for shape in _SHAPES:
        if match := shape.fullmatch(path):
            file = (match.groupdict().get("file") or "").removesuffix("+esm").strip("/")
            name = match["name"]
            if file.startswith("."):
                file = name + file
            for known in dict.fromkeys((name, name.lower())):
                yield known, file
                if other := _OTHER_NAMES.get(known.removesuffix(".js")) or _OTHER_NAMES.get(known):
                    yield other, file
                if not known.endswith(".js"):
                    yield f"{known}.js", file
