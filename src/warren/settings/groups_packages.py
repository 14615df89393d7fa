"""The settings of packages: where they come from, and how much of them is kept."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from warren.domain.values import GIB
from warren.settings.kinds import Group, Names, Size


def _check_index(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_one = bool(parts.hostname) and parts.scheme in {"http", "https"} and (parts.port or 1) > 0
    except ValueError:
        is_one = False
    if url and not is_one and not url.startswith(("file:///", "/")):
        raise ValueError("write an address that begins with https://, http:// or file:///, or a folder")
    return url


def _check_indexes(urls: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_check_index, urls))


Index = Annotated[str, AfterValidator(_check_index)]
Indexes = Annotated[Names, AfterValidator(_check_indexes)]


class PackageSettings(Group):
    """Packages that sandboxes install, through a cache that all of them share."""

    python_index: Index = Field(
        default="",
        description="Index of Python packages, such as `https://packages.example.com/simple/`. Unless this or one of "
        "the next two is set, it is as pip and uv are configured on this host.",
    )
    python_extra_indexes: Indexes = Field(
        default=(), description="Further indexes, asked in this order; see `index_strategy`."
    )
    index_strategy: Literal["auto", "first", "merge"] = Field(
        default="auto",
        description="What counts when several indexes have a Python project. `first`: the first that has it, alone, so "
        "that nobody can put a higher version of a private project into another index. `merge`: the best version of "
        "any, as pip does it. `auto`: `first` for indexes that are set here and where uv is configured on this host "
        "(unless its `index-strategy` is `unsafe-best-match`), `merge` where only pip is.",
    )
    python_find_links: Indexes = Field(default=(), description="Folders, or pages, of Python packages.")
    python_credentials: SecretStr | None = Field(default=None, description="`user:password` for `python_index`.")
    npm_registry: Index = Field(
        default="", description="The npm registry; unless set, it is as npm is configured on this host."
    )
    npm_token: SecretStr | None = Field(default=None, description="Token for `npm_registry`.")
    hosts: Names = Field(
        default=(),
        description="Hosts to which an index may lead although their addresses are not public, such as where it has "
        "its files.",
    )
    ca_file: str = Field(
        default="", description="Certificates, in PEM, that an index is believed by, besides those this host believes."
    )
    proxy: Index = Field(
        default="", description="Proxy on the way to the indexes; unless set, that of pip or `HTTPS_PROXY`, if any."
    )
    cache_bytes: Size = Field(
        default=10 * GIB, ge=0, description="Files of packages that are kept; what was not used for longest goes."
    )
    file_bytes: Size = Field(default=4 * GIB, ge=1, description="Largest file of a package.")
    page_s: float = Field(
        default=300, ge=0, le=86_400, description="Seconds after which an index is asked again what it has."
    )
    timeout_s: float = Field(
        default=300, gt=0, le=86_400, description="Seconds an installation may take when the caller does not say."
    )
