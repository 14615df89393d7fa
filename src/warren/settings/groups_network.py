"""Settings of egress and packages: what sandboxes may reach, and where packages come from."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from warren.domain.values import GIB
from warren.settings.kinds import Group, Names, Size

_SCOPE = re.compile(r"@[a-z0-9~][a-z0-9._~-]*")


def _check_proxy(value: SecretStr) -> SecretStr:
    try:
        parts = urlsplit(value.get_secret_value())
        is_one = parts.scheme == "http" and bool(parts.hostname) and (parts.port or 1) > 0
        is_one = is_one and parts.path in {"", "/"} and not parts.query and not parts.fragment
    except ValueError:
        is_one = False
    if not is_one:
        raise ValueError("write http://host:port, with user:password@ before the host if it asks for them")
    return value


class EgressSettings(Group):
    """Egress of sandboxes."""

    default: Literal["none", "packages", "open"] = Field(
        default="none",
        description="Egress of a sandbox unless its caller sets it: `none`, `packages` or `open`.",
    )
    connections: int = Field(
        default=64, ge=1, le=256, description="Egress connections of one sandbox at once; further ones wait."
    )
    everybody: int = Field(default=1024, ge=1, description="Egress connections of all sandboxes at once.")
    per_minute: int = Field(
        default=1200, ge=0, description="New egress connections per minute of one sandbox; 0 is no limit."
    )
    bytes_per_hour: Size = Field(
        default=100 * GIB, ge=0, description="Egress bytes per hour of one sandbox, both directions; 0 is no limit."
    )
    idle_s: float = Field(
        default=600, ge=1, le=86_400, description="Seconds without a byte after which a connection is closed."
    )
    answer_s: float = Field(
        default=300, ge=1, le=86_400, description="Timeout for the first byte of a response, in seconds."
    )
    upstream_proxy: Annotated[SecretStr, AfterValidator(_check_proxy)] | None = Field(
        default=None,
        description="Upstream proxy of all egress, by `CONNECT`: `http://user:password@proxy.example.com:3128`. It "
        "resolves names; the page on egress explains the consequences. Unless `packages.proxy` is set, packages come "
        "through it too.",
    )
    ca_file: str = Field(
        default="",
        description="Certificates in PEM that are trusted where the service speaks TLS for a sandbox, besides those "
        "this host trusts.",
    )


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


def _check_scopes(scopes: tuple[str, ...]) -> tuple[str, ...]:
    for each in scopes:
        scope, _, url = each.partition("=")
        if not _SCOPE.fullmatch(scope) or not _check_index(url).startswith(("https://", "http://")):
            raise ValueError("write a scope and its registry, such as @corp=https://npm.example.com/")
    return scopes


Index = Annotated[str, AfterValidator(_check_index)]
Indexes = Annotated[Names, AfterValidator(_check_indexes)]
Scopes = Annotated[Names, AfterValidator(_check_scopes)]


class PackageSettings(Group):
    """Packages that sandboxes install, through a cache that all of them share."""

    python_index: Index = Field(
        default="",
        description="Index of Python packages, such as `https://packages.example.com/simple/`. Where neither this nor "
        "`python_extra_indexes` nor `python_find_links` is set: the index of `PIP_INDEX_URL`, or else PyPI.",
    )
    python_extra_indexes: Indexes = Field(
        default=(), description="Further indexes, in their order; see `index_strategy`."
    )
    index_strategy: Literal["first", "merge"] = Field(
        default="first",
        description="Which index counts when several have a Python project. `first`: the first that has it, alone, so "
        "that a higher version of a private project in another index is never installed. `merge`: the best version of "
        "all indexes, as pip does it.",
    )
    python_find_links: Indexes = Field(default=(), description="Folders, or pages, of Python packages.")
    python_credentials: SecretStr | None = Field(default=None, description="`user:password` for `python_index`.")
    npm_registry: Index = Field(default="", description="The npm registry; unless set, the public one.")
    npm_token: SecretStr | None = Field(default=None, description="Token for `npm_registry`.")
    npm_scopes: Scopes = Field(
        default=(),
        description="Registries of npm scopes, such as `@corp=https://npm.example.com/`: packages of that scope come "
        "from there only.",
    )
    hosts: Names = Field(
        default=(),
        description="Hosts without a public address that an index may link to, such as those of its files.",
    )
    ca_file: str = Field(
        default="", description="Certificates in PEM that are trusted for indexes, besides those this host trusts."
    )
    proxy: Index = Field(
        default="", description="Proxy for requests to indexes; unless set, `egress.upstream_proxy`, if any."
    )
    cache_bytes: Size = Field(
        default=10 * GIB, ge=0, description="Size of the package cache; the least recently used files are removed."
    )
    file_bytes: Size = Field(default=4 * GIB, ge=1, description="Largest file of a package.")
    page_s: float = Field(default=300, ge=0, le=86_400, description="Seconds that a page of an index is cached.")
    timeout_s: float = Field(
        default=300, gt=0, le=86_400, description="Seconds of an installation, unless the caller sets a timeout."
    )
