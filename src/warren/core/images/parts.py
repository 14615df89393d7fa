"""Parts of an image besides Python packages: system packages, a browser, fonts, and Node.js packages."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warren.domain.errors import InvalidRequest, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLES = ("system", "browser", "fonts", "lookalikes", "node")

_DEBIAN = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")
_PATH = re.compile(r"(/[A-Za-z0-9+._-]+)+")
_NODE = re.compile(r"((?:@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*)==([0-9][A-Za-z0-9.+-]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The optional parts of an image that are not Python packages."""

    packages: tuple[str, ...] = ()
    """Debian packages; `a | b` is the first of them that exists."""
    commands: tuple[str, ...] = ()
    """Programs to check for where the system is not Debian."""
    browser: tuple[str, ...] = ()
    """Paths of Chromium in a sandbox, the first that exists counts."""
    fonts: Mapping[str, str] = field(default_factory=dict)
    """Names of fonts that are not installed, and their metric-compatible substitutes."""
    lookalikes: Mapping[str, str] = field(default_factory=dict)
    """Substitutes that only look similar: a browser prefers the next font of the page's list."""
    node: tuple[str, ...] = ()
    node_lock: str | None = None
    """Text of the npm lock beside the spec."""

    def inputs(self) -> dict[str, Any]:
        """Return what enters the digest; empty for an image without parts, whose address must not change."""
        named = {
            "system": [list(self.packages), list(self.commands)] if self.packages or self.commands else None,
            "browser": list(self.browser) or None,
            "fonts": dict(self.fonts) or None,
            "lookalikes": dict(self.lookalikes) or None,
            "node": [sorted(self.node), None if self.node_lock is None else json.loads(self.node_lock)]
            if self.node
            else None,
        }
        return {key: value for key, value in named.items() if value is not None}


def parse_parts(values: Mapping[str, Any], *, path: str, node_lock: str | None) -> Parts:
    """Parse the tables of a spec for these parts. Raises InvalidRequest."""
    system = _table(values, "system", ("packages", "commands"), path)
    browser = _table(values, "browser", ("programs",), path)
    node = _table(values, "node", ("packages",), path)
    packages = read_words(system, "system.packages", path)
    for name in (word.strip() for package in packages for word in package.split("|")):
        check_word(_DEBIAN, name, f"{path}: system package {name!r} must be the name of a Debian package")
    commands = read_words(system, "system.commands", path)
    for name in commands:
        check_word(_PROGRAM, name, f"{path}: system command {name!r} must be the name of a program")
    programs = read_words(browser, "browser.programs", path)
    for name in programs:
        check_word(_PATH, name, f"{path}: browser program {name!r} must be an absolute path")
    wanted = read_words(node, "node.packages", path)
    for name in wanted:
        check_word(_NODE, name, f"{path}: node package {name!r} must be a name and a version, as in 'pptxgenjs==4.0.1'")
    fonts, lookalikes = _fonts(values, "fonts", path), _fonts(values, "lookalikes", path)
    if wanted:
        _check_node_lock(wanted, node_lock, path)
    return Parts(
        packages=packages,
        commands=commands,
        browser=programs,
        fonts=fonts,
        lookalikes=lookalikes,
        node=wanted,
        node_lock=node_lock,
    )


def _fonts(values: Mapping[str, Any], key: str, path: str) -> Mapping[str, str]:
    fonts = values.get(key, {})
    if not isinstance(fonts, dict) or not all(isinstance(value, str) and value for value in fonts.values()):
        raise InvalidRequest(f"{path}: {key} must be a table of strings: a font's name, and what stands in for it")
    return fonts


def split_node(package: str) -> tuple[str, str]:
    """Return name and version of a Node.js package."""
    match = _NODE.fullmatch(package)
    assert match is not None
    return match[1], match[2]


def _check_node_lock(wanted: tuple[str, ...], lock: str | None, path: str) -> None:
    beside = path.removesuffix(".toml") + ".npm.json"
    if lock is None:
        raise InvalidRequest(f"{path} asks for packages of Node.js, so it needs npm's lock, {beside}")
    try:
        locked = json.loads(lock)["packages"]
        found = {name: locked[f"node_modules/{name}"]["version"] for name, _ in map(split_node, wanted)}
        unhashed = [name for name, each in locked.items() if name and not str(each["integrity"]).startswith("sha512-")]
    except (ValueError, KeyError, TypeError, AttributeError):
        found, unhashed = {}, []
    if found != dict(map(split_node, wanted)) or unhashed:
        raise InvalidRequest(f"{path} asks for packages of Node.js that {beside} does not hold: make that lock again")


def _table(values: Mapping[str, Any], name: str, keys: tuple[str, ...], path: str) -> Mapping[str, Any]:
    table = values.get(name, {})
    if not isinstance(table, dict):
        raise InvalidRequest(f"{path}: {name} must be a table, not {table!r}")
    for key in table:
        if key not in keys:
            raise InvalidRequest(f"{path}: unknown key {name}.{key}{suggest(key, keys)}")
    return table


def read_words(table: Mapping[str, Any], name: str, path: str) -> tuple[str, ...]:
    """Return the list of strings of a key, which may follow the name of its table. Raises InvalidRequest."""
    value = table.get(name.rpartition(".")[2], [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidRequest(f"{path}: {name} must be a list of strings, not {value!r}")
    return tuple(value)


def check_word(pattern: re.Pattern[str], word: str, sentence: str) -> None:
    """Raise InvalidRequest with that sentence where a word does not match."""
    if not pattern.fullmatch(word):
        raise InvalidRequest(sentence)
