"""Mirror of well-known web scripts, styles and fonts, from installed npm packages: a render has no network.

Releases differ from the requested ones; the image pins one of each. Web fonts are the image's own fonts.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from warren.render.browser import mirror_names
from warren.render.browser.deck import Answer, content_type

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FILE = 32 << 20
_MAX_INDEXED = 20_000
_MAX_URL = 2000
_HERE = "https://mirror.invalid/npm"
_FOLDERS = ("", "dist", "dist/js", "dist/css", "dist/umd", "umd", "build", "lib", "es5", "css", "js", "min")
_MAIN_FIELDS = ("jsdelivr", "unpkg", "browser", "main", "style")
_SAFE_NAME = re.compile(r"(?:@[a-z0-9][\w.~-]*/)?[a-z0-9][\w.~-]*", re.IGNORECASE | re.ASCII)
_ICON_SHEETS = {
    "Material Icons": "iconfont/material-icons.css",
    "Material Icons Outlined": "iconfont/outlined.css",
    "Material Icons Round": "iconfont/round.css",
    "Material Icons Sharp": "iconfont/sharp.css",
    "Material Icons Two Tone": "iconfont/two-tone.css",
}
_STILL = {
    "chart.js": b"\n;if(globalThis.Chart&&Chart.defaults)Chart.defaults.animation=false;",
    "echarts": b"""
;if(globalThis.echarts)(()=>{const init=echarts.init;echarts.init=function(){const chart=init.apply(this,arguments),
set=chart.setOption;chart.setOption=function(option,...rest){return set.call(this,option&&typeof option==='object'?
{...option,animation:false}:option,...rest)};return chart}})();""",
}
"""Added to libraries that draw step by step. WHY: the picture would wait for the last step."""
_EXPORT = re.compile(rb"\bexports\.([A-Za-z_$][\w$]*) ?= ?(?!void 0)")
_MODULE_PATH = re.compile(r"/es/|esm")
_MODULE = re.compile(rb"^\s*(?:import|export)\b", re.MULTILINE)


class Mirror:
    """Resolves addresses of other hosts to files of a `node_modules` folder."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)
        self._indexes: dict[str, dict[str, str]] = {}

    def find(self, url: str) -> Answer | None:
        """Return the file at an address of the web, or None when it is not here."""
        if len(url) > _MAX_URL:
            return None
        families = mirror_names.is_font_sheet(url)
        if families is not None:
            return self._font_sheet(families)
        is_module = mirror_names.wants_module(url)
        for package, file in mirror_names.guess(url):
            path = self._resolve(package, "" if is_module else file)
            if is_module and path:
                # Files that are not minified still name their exports.
                path = next((each for each in (path.replace(".min.", "."), path) if os.path.isfile(each)), None)
            if path is None or (content := self._read(path)) is None:
                continue
            if is_module:
                return Answer(_as_module(content), "text/javascript; charset=utf-8")
            return self._finish(package, path, content)
        return None

    def _finish(self, package: str, path: str, content: bytes) -> Answer:
        if path.endswith(".js"):
            # WHY: some packages have made a module of a file that was a script, on which a page's script tag fails.
            if _MODULE.search(content) and not _MODULE_PATH.search(path) and (other := self._resolve(package, "")):
                content = self._read(other) or content
            content += _STILL.get(package, b"")
        return Answer(content, content_type(path))

    def _resolve(self, package: str, file: str) -> str | None:
        if not _SAFE_NAME.fullmatch(package):
            return None
        folder = os.path.join(self._folder, package)
        if not os.path.isfile(os.path.join(folder, "package.json")):
            return None
        if not file:
            return self._main(folder)
        if ".." in file.split("/"):
            return None
        for name in _spellings(file):
            for place in _FOLDERS:
                if os.path.isfile(path := os.path.join(folder, place, name)):
                    return path
        index = self._index(folder)
        return next((index[name] for name in _spellings(os.path.basename(file)) if name in index), None)

    def _main(self, folder: str) -> str | None:
        try:
            with open(os.path.join(folder, "package.json"), "rb") as file:
                described = json.load(file)
        except (OSError, ValueError):
            return None
        named = [described.get(field) for field in _MAIN_FIELDS]
        usual = f"dist/{os.path.basename(folder)}.min.js"
        for name in (*named, usual):
            if not isinstance(name, str) or name.endswith((".cjs", ".mjs")):
                continue
            path = os.path.normpath(os.path.join(folder, name))
            if path.startswith(folder + os.sep) and os.path.isfile(path):
                return path
        return None

    def _index(self, folder: str) -> dict[str, str]:
        """Index a package by file name; of several files with one name, the one nearest to the top wins."""
        if folder not in self._indexes:
            found: dict[str, str] = {}
            walked = 0
            for place, _, names in os.walk(folder):
                walked += len(names)
                if walked > _MAX_INDEXED:
                    break
                for name in names:
                    path = os.path.join(place, name)
                    if path.count("/") < found.get(name, path + "/").count("/"):
                        found[name] = path
            self._indexes[folder] = found
        return self._indexes[folder]

    def _read(self, path: str) -> bytes | None:
        # WHY resolved: a link in a package must not lead out of the mirror.
        real = os.path.realpath(path)
        if not real.startswith(self._folder + os.sep) or os.path.getsize(real) > MAX_FILE:
            return None
        with open(real, "rb") as file:
            return file.read()

    def _font_sheet(self, families: tuple[str, ...]) -> Answer:
        """Return the rules for icon fonts; all other families are installed, or have an installed equivalent."""
        sheets = []
        for family in families:
            name = _ICON_SHEETS.get(family, "")
            path = self._resolve("material-icons", name) if name else None
            if path and (content := self._read(path)) is not None:
                base = f"{_HERE}/material-icons@1/{os.path.dirname(name)}/".encode()
                sheets.append(re.sub(rb"""url\((["']?)(?:\./)?(?=[\w-])""", rb"url(\1" + base, content))
        return Answer(b"\n".join(sheets), "text/css; charset=utf-8")


def _spellings(file: str) -> Iterator[str]:
    """Yield a file's name and its names in other releases."""
    stem, dot, extension = file.rpartition(".")
    yield file
    if not dot:
        yield f"{file}.js"
        yield f"{file}.min.js"
        return
    plain = stem.removesuffix(".min")
    base = plain.removesuffix(".bundle").removesuffix(".umd")
    for name in dict.fromkeys((f"{base}.umd", f"{base.lower()}.umd", plain, base, base.lower())):
        yield f"{name}.min.{extension}"
        yield f"{name}.{extension}"


def _as_module(script: bytes) -> bytes:
    """Wrap a UMD script as an ECMAScript module."""
    if _MODULE.search(script):
        return script
    names = dict.fromkeys(name.decode() for name in _EXPORT.findall(script))
    names.pop("default", None)
    # WHY other names inside: the script means the page's own by some of them, `window` for one.
    taken = ", ".join(f"{name}: $own{at}" for at, name in enumerate(names))
    given = ", ".join(f"$own{at} as {name}" for at, name in enumerate(names))
    named = f"const {{{taken}}} = given;\nexport {{{given}}};\n" if names else ""
    return (
        b"const module = {exports: {}}, exports = module.exports;\n(function () {\n"
        + script
        + b"\n}).call(globalThis);\nconst given = module.exports;\nexport default given.default ?? given;\n"
        + named.encode()
    )
