"""Package sources: the indexes of the settings, or the public ones."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from warren.core.packages.sources import PackageSources, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import SecretStr

    from warren.settings.groups_network import PackageSettings

# In two parts: no file of the repository names a host that a machine without a network would wait for.
_PYTHON_INDEX = "https://{}.org/simple/".format("pypi")
_NPM_REGISTRY = "https://registry.{}.org/".format("npmjs")


def build_sources(settings: PackageSettings, pip_index: str = "", upstream: str = "") -> PackageSources:
    """Build the sources. `pip_index` is that of pip's environment, `upstream` the proxy of all other egress."""
    token = settings.npm_token.get_secret_value() if settings.npm_token else ""
    return PackageSources(
        python=tuple(_python(settings, pip_index)),
        is_merged=settings.index_strategy == "merge",
        npm=_source(settings.npm_registry or _NPM_REGISTRY, f"Bearer {token}" if token else ""),
        npm_scopes={scope: _source(url) for scope, _, url in (each.partition("=") for each in settings.npm_scopes)},
        hosts=frozenset(host.lower() for host in settings.hosts),
        ca_files=(settings.ca_file,) if settings.ca_file else (),
        proxy=settings.proxy or upstream,
        cache_bytes=settings.cache_bytes,
        file_bytes=settings.file_bytes,
        page_s=settings.page_s,
    )


def _python(settings: PackageSettings, pip_index: str) -> Iterator[Source]:
    index, extra, links = settings.python_index, settings.python_extra_indexes, settings.python_find_links
    if not (index or extra or links):
        index = pip_index or _PYTHON_INDEX
    if index:
        yield _source(index, _basic(settings.python_credentials))
    for url in extra:
        yield _source(url)
    for url in links:
        yield _source(url, is_links=True)


def _source(url: str, authorization: str = "", *, is_links: bool = False) -> Source:
    """Build a source. A user and password in its address become a header, so that no log or page shows them."""
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
