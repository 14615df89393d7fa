"""How pip, uv and npm are configured on this host: an operator who has told them need not tell Warren."""

from __future__ import annotations

import configparser
import contextlib
import os
import sys
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_MAX_FILE = 1 << 20
_NPM_CREDENTIALS = {"_authToken": "Bearer", "_auth": "Basic"}
_UV_MERGES = "unsafe-best-match"
"""What uv calls it to take the best version of any index."""


@dataclass(slots=True)
class Tools:
    """What they say. The lists are in the order in which they are asked."""

    index: str = ""
    first_indexes: list[str] = field(default_factory=list)
    """What uv asks before that one: its default index is its last."""
    extra_indexes: list[str] = field(default_factory=list)
    """What pip asks besides."""
    strategy: str = ""
    """`first` or `merge`: how these would take a project that several indexes have. Empty: nothing names an index."""
    find_links: list[str] = field(default_factory=list)
    no_index: bool = False
    registry: str = ""
    registry_scopes: dict[str, str] = field(default_factory=dict)
    """Registries of scopes: `@scope`."""
    registry_credentials: dict[str, str] = field(default_factory=dict)
    """The header's value, by what the address begins with, without its scheme: `//host/path/`."""
    ca_files: list[str] = field(default_factory=list)
    proxy: str = ""


def read_tools(environ: Mapping[str, str], etc: str = "/etc") -> Tools:
    """Read the environment and the files; what cannot be read counts as not there."""
    found = Tools()
    layers = list(_python_layers(environ, etc))
    found.strategy = _find_strategy(layers)
    for said in layers:
        found.index = found.index or said.get("index", "")
        _extend(found.first_indexes, said.get("first", ()))
        _extend(found.extra_indexes, said.get("extra", ()))
        _extend(found.find_links, said.get("links", ()))
        found.no_index = found.no_index or bool(said.get("no_index"))
        _extend(found.ca_files, said.get("cert", ()))
        found.proxy = found.proxy or said.get("proxy", "")
    _read_npm(found, environ, etc)
    if not found.proxy:
        found.proxy = environ.get("HTTPS_PROXY") or environ.get("https_proxy") or ""
    if cert := environ.get("SSL_CERT_FILE"):
        _extend(found.ca_files, [cert])
    found.ca_files = [path for path in found.ca_files if os.path.isfile(path)]
    return found


def _extend(known: list[str], more: Iterable[str]) -> None:
    known += [each for each in more if each and each not in known]


def _find_strategy(layers: list[dict[str, Any]]) -> str:
    """Find how a project that several indexes have is taken: uv's way where uv is configured, nobody can abuse it."""
    of_uv = [said for said in layers if "first" in said]
    chosen = next((said["strategy"] for said in of_uv if said["strategy"]), "")
    if chosen:
        return "merge" if chosen == _UV_MERGES else "first"
    if any(said["index"] or said["first"] for said in of_uv):
        return "first"
    return "merge" if any(said.get("index") or said.get("extra") for said in layers) else ""


def _python_layers(environ: Mapping[str, str], etc: str) -> Iterator[dict[str, Any]]:
    """Yield what each place says, the strongest first."""
    named = [
        part.rpartition("=")[2] if "://" not in part.partition("=")[0] else part for part in _words(environ, "UV_INDEX")
    ]
    yield {
        "index": environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or "",
        "first": [*named, *_words(environ, "UV_EXTRA_INDEX_URL")],
        "strategy": environ.get("UV_INDEX_STRATEGY", ""),
        "links": environ.get("UV_FIND_LINKS", "").replace(",", " ").split(),
    }
    yield _pip({name[4:].lower().replace("_", "-"): value for name, value in environ.items() if name[:4] == "PIP_"})
    for path in _pip_files(environ, etc):
        yield _read_pip(path)
    home = environ.get("XDG_CONFIG_HOME") or f"{_home(environ)}/.config"
    for path in (f"{home}/uv/uv.toml", f"{etc}/uv/uv.toml"):
        yield _read_uv(path)


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")


def _words(environ: Mapping[str, str], name: str) -> list[str]:
    return environ.get(name, "").split()


def _pip(said: Mapping[str, str]) -> dict[str, Any]:
    return {
        "index": said.get("index-url", ""),
        "extra": said.get("extra-index-url", "").split(),
        "links": said.get("find-links", "").split(),
        "no_index": said.get("no-index", "").lower() in {"1", "true", "yes", "on", "y", "t"},
        "cert": [said.get("cert", "")],
        "proxy": said.get("proxy", ""),
    }


def _pip_files(environ: Mapping[str, str], etc: str) -> list[str]:
    chosen = environ.get("PIP_CONFIG_FILE", "")
    if chosen == os.devnull:
        return []
    home = environ.get("XDG_CONFIG_HOME") or f"{_home(environ)}/.config"
    user = [f"{home}/pip/pip.conf", f"{_home(environ)}/.pip/pip.conf"]
    return [
        path for path in (chosen, f"{sys.prefix}/pip.conf", *user, f"{etc}/pip.conf", f"{etc}/xdg/pip/pip.conf") if path
    ]


def _read_pip(path: str) -> dict[str, Any]:
    parser = configparser.RawConfigParser()
    with contextlib.suppress(configparser.Error):
        parser.read_string(_read(path), path)
    said: dict[str, str] = {}
    for section in ("global", "install", "download"):
        if parser.has_section(section):
            said |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    return _pip(said)


def _read_uv(path: str) -> dict[str, Any]:
    try:
        said = tomllib.loads(_read(path))
        pip = said.get("pip", {})
        indexes = [*said.get("index", []), *pip.get("index", [])]
        if not all(isinstance(each["url"], str) for each in indexes):
            return {}
        chosen = [each["url"] for each in indexes if each.get("default")]
        return {
            "index": (chosen or [said.get("index-url") or pip.get("index-url") or ""])[0],
            "first": [
                *(each["url"] for each in indexes if not each.get("default")),
                *said.get("extra-index-url", pip.get("extra-index-url", [])),
            ],
            "strategy": said.get("index-strategy", pip.get("index-strategy", "")),
            "links": list(said.get("find-links", pip.get("find-links", []))),
            "no_index": bool(said.get("no-index", pip.get("no-index", False))),
        }
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError):
        return {}


def _read_npm(found: Tools, environ: Mapping[str, str], etc: str) -> None:
    found.registry = environ.get("npm_config_registry") or environ.get("NPM_CONFIG_REGISTRY") or ""
    user = environ.get("npm_config_userconfig") or f"{_home(environ)}/.npmrc"
    for path in (user, f"{etc}/npmrc", f"{etc}/../usr/etc/npmrc", f"{etc}/../usr/local/etc/npmrc"):
        for line in _read(path).splitlines():
            key, equals, value = line.partition("=")
            key, value = key.strip(), value.strip().strip("\"'")
            if not equals or key.startswith((";", "#")) or value.startswith("${"):
                continue
            if key == "registry":
                found.registry = found.registry or value
            elif key == "cafile":
                _extend(found.ca_files, [value])
            elif key.startswith("@") and key.endswith(":registry"):
                found.registry_scopes.setdefault(key.removesuffix(":registry").lower(), value)
            elif key.startswith("//"):
                place, _, what = key.rpartition(":")
                if what in _NPM_CREDENTIALS:
                    found.registry_credentials.setdefault(place, f"{_NPM_CREDENTIALS[what]} {value}")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_FILE)
    except OSError:
        return ""
