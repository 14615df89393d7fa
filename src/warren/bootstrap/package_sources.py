"""From the settings, or else from how pip, uv and npm are configured on this host, to the indexes that are asked."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from warren.core.packages.sources import PackageSources, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import SecretStr

    from warren.settings.groups_packages import PackageSettings
    from warren.settings.package_tools import Tools

# In two parts: nothing in this repository names a host that a machine without a network would wait for.
_PYTHON_INDEX = "https://{}.org/simple/".format("pypi")
_NPM_REGISTRY = "https://registry.{}.org/".format("npmjs")


def build_sources(settings: PackageSettings, tools: Tools, upstream: str = "") -> PackageSources:
    """Build what is asked. `upstream` is the proxy that all else goes through."""
    return PackageSources(
        python=tuple(_python(settings, tools)),
        is_merged=_find_strategy(settings, tools) == "merge",
        npm=_npm(settings, tools),
        npm_scopes={} if settings.npm_registry else _npm_scopes(tools),
        hosts=frozenset(host.lower() for host in settings.hosts),
        ca_files=tuple(filter(None, (settings.ca_file, *tools.ca_files))),
        proxy=settings.proxy or tools.proxy or upstream,
        cache_bytes=settings.cache_bytes,
        file_bytes=settings.file_bytes,
        page_s=settings.page_s,
    )


def _python(settings: PackageSettings, tools: Tools) -> Iterator[Source]:
    index, extra, links = settings.python_index, settings.python_extra_indexes, settings.python_find_links
    if not _has_own(settings):
        index = "" if tools.no_index else tools.index or _PYTHON_INDEX
        extra, links = tuple([] if tools.no_index else tools.extra_indexes), tuple(tools.find_links)
        for url in [] if tools.no_index else tools.first_indexes:
            yield _source(url)
    if index:
        yield _source(index, _basic(settings.python_credentials))
    for url in extra:
        yield _source(url)
    for url in links:
        yield _source(url, is_links=True)


def _has_own(settings: PackageSettings) -> bool:
    return bool(settings.python_index or settings.python_extra_indexes or settings.python_find_links)


def _find_strategy(settings: PackageSettings, tools: Tools) -> str:
    if settings.index_strategy != "auto":
        return settings.index_strategy
    return "first" if _has_own(settings) else tools.strategy


def _npm(settings: PackageSettings, tools: Tools) -> Source:
    url = settings.npm_registry or tools.registry or _NPM_REGISTRY
    token = settings.npm_token.get_secret_value() if settings.npm_token else ""
    return _source(url, f"Bearer {token}" if token else _find_credentials(url, tools))


def _npm_scopes(tools: Tools) -> dict[str, Source]:
    return {scope: _source(url, _find_credentials(url, tools)) for scope, url in tools.registry_scopes.items()}


def _find_credentials(url: str, tools: Tools) -> str:
    place = url.partition(":")[2].rstrip("/") + "/"
    found = [start for start in tools.registry_credentials if place.startswith(start.rstrip("/") + "/")]
    return tools.registry_credentials[max(found, key=len)] if found else ""


def _source(url: str, authorization: str = "", *, is_links: bool = False) -> Source:
    """Build one; a user and password in its address become a header, so that no log or page shows them."""
    if "://" not in url and not url.startswith("file:"):
        url = f"file://{quote(url)}"
    parts = urlsplit(url)
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = authorization or f"Basic {base64.b64encode(pair.encode()).decode()}"
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    path = parts.path if is_links or parts.path.endswith("/") else f"{parts.path}/"
    return Source(url=urlunsplit(parts._replace(path=path)), authorization=authorization, is_links=is_links)


def _basic(pair: SecretStr | None) -> str:
    return "" if pair is None else f"Basic {base64.b64encode(pair.get_secret_value().encode()).decode()}"
