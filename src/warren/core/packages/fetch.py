"""HTTP client for package indexes. Its requests are the service's own, never built from a sandbox's input.

1. A request goes to an index that the operator named, or to an address that such an index gave.
2. Redirects lead to https, or to http where the index itself is http; their number is bounded.
3. An address that is not public is connected to only for an index of the operator's, or a host that the operator
   listed. The address that was checked is the one that is connected to.
4. Credentials go to their own origin only.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import anyio
from anyio import to_thread

from warren.core.egress.internal_hosts import InnerFailed
from warren.core.packages.sources import origin_of
from warren.core.policy.public_addresses import is_ours, is_public, plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import httpx

    from warren.core.packages.sources import PackageSources, Source

MAX_PAGE = 64 << 20
_MAX_URL = 4000
_HOPS = 5
_CLIENTS = 16
_CONNECT_S = 5.0
_READ_S = 30.0
_PAGE_S = 120.0
"""For a whole page: a server that trickles is not waited for."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_GONE = frozenset({404, 410})
_CODINGS = frozenset({"", "identity", "gzip"})


class Unfetched(InnerFailed):
    """The fetch failed; the message holds no secret."""

    def __init__(self, message: str, *, is_missing: bool = False, is_down: bool = False) -> None:
        super().__init__(message)
        self.is_missing = is_missing
        """Whether the index does not have it."""
        self.is_down = is_down
        """Whether the index did not answer."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A response whose body is read once."""

    status: int
    url: str
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]

    @property
    def size(self) -> int | None:
        """The length of the body, if it is known."""
        length = self.headers.get("content-length", "")
        is_plain = "content-encoding" not in self.headers
        return int(length) if is_plain and length.isascii() and length.isdigit() and len(length) < 16 else None


class Fetcher:
    """HTTP client of the indexes. Connections stay open until `aclose`."""

    def __init__(self, sources: PackageSources) -> None:
        self._sources = sources
        named = (*sources.python, *((sources.npm,) if sources.npm else ()), *sources.npm_scopes.values())
        self._trusted = {source.origin[1:] for source in named if source.path is None}
        self.page_s = _PAGE_S
        self._clients: dict[str, httpx.AsyncClient] = {}
        self._context: ssl.SSLContext | None = None

    async def aclose(self) -> None:
        """Close the connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    @contextlib.asynccontextmanager
    async def get(self, url: str, source: Source, headers: Mapping[str, str]) -> AsyncIterator[Fetched]:
        """Fetch from an index, or an address that it named. The status is 200 or 304. Raises Unfetched."""
        import httpx

        try:
            for _ in range(_HOPS):
                self._check(url, source)
                async with self._ask(url, source, headers) as answer:
                    if answer.status_code not in _REDIRECTS:
                        _check_status(answer.status_code, urlsplit(url).hostname or "")
                        _check_coding(answer.headers.get("content-encoding", ""))
                        yield Fetched(answer.status_code, url, answer.headers, answer.aiter_bytes())
                        return
                    url = urljoin(url, answer.headers.get("location", ""))
        except httpx.TransportError as exc:
            where = urlsplit(url).hostname
            raise Unfetched(
                f"the package index at {where} cannot be reached ({type(exc).__name__})", is_down=True
            ) from exc
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as exc:
            raise Unfetched(f"the package index sent an invalid response ({type(exc).__name__})") from exc
        raise Unfetched("the package index redirects in circles")

    async def get_page(self, url: str, source: Source, headers: Mapping[str, str]) -> tuple[Fetched, bytes]:
        """Fetch a small resource as a whole. Raises Unfetched."""
        try:
            with anyio.fail_after(self.page_s):
                async with self.get(url, source, headers) as answer:
                    return answer, await _read_page(answer)
        except TimeoutError:
            where = urlsplit(url).hostname
            raise Unfetched(
                f"the package index at {where} took longer than {self.page_s:g} s for a page", is_down=True
            ) from None

    def _check(self, url: str, source: Source) -> None:
        parts = urlsplit(url)
        is_plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= _MAX_URL
        if not is_plain or not parts.hostname:
            raise Unfetched("the package index names an invalid address")
        if parts.scheme != "https" and not (parts.scheme == "http" and source.origin[0] == "http"):
            raise Unfetched(f"the package index leads to {parts.scheme}: only https is followed")

    @contextlib.asynccontextmanager
    async def _ask(self, url: str, source: Source, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        import httpx

        target = httpx.URL(url).copy_with(fragment=None, userinfo=b"")
        sent = {"Host": target.netloc.decode("ascii"), **headers}
        if source.authorization and origin_of(url) == source.origin:
            sent["Authorization"] = source.authorization
        address = await self._choose(target.host, origin_of(url)[2])
        client = await self._client(target.host)
        pinned = target if address is None else target.copy_with(host=address)
        extensions: dict[str, Any] = {"sni_hostname": target.host}
        async with client.stream("GET", pinned, headers=sent, extensions=extensions) as answer:
            yield answer

    async def _choose(self, host: str, port: int | None) -> str | None:
        """Return the address to connect to; None where the name is trusted, or a proxy resolves it."""
        if (host.lower(), port) in self._trusted or host.lower() in self._sources.hosts:
            return None
        try:
            literal: Any = ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            literal = None
        if literal is None and self._sources.proxy:
            return None
        found = [plain(literal)] if literal is not None else await _look_up(host, port)
        for address in found:
            if is_public(address) and not is_ours(address):
                return str(address)
        # A network may serve all public indexes from one internal address of its own.
        for trusted, its_port in self._trusted if found else ():
            if its_port == port:
                with contextlib.suppress(Unfetched):
                    same = [each for each in await _look_up(trusted, port) if each in found]
                    if same:
                        return str(same[0])
        raise Unfetched(
            f"the package index leads to {host[:100]}, which is no public address: the operator may list it in "
            "packages.hosts"
        )

    async def _client(self, host: str) -> httpx.AsyncClient:
        """Return the client of a host: connections are never shared between hosts."""
        import httpx

        if self._context is None:
            self._context = await to_thread.run_sync(_build_context, self._sources.ca_files)
        if host not in self._clients and len(self._clients) >= _CLIENTS:
            await self._clients.pop(next(iter(self._clients))).aclose()
        # No await from here on: concurrent callers get the same client.
        client = self._clients.get(host)
        if client is None:
            client = self._clients[host] = httpx.AsyncClient(
                verify=self._context,
                trust_env=False,
                proxy=self._sources.proxy or None,
                follow_redirects=False,
                timeout=httpx.Timeout(_READ_S, connect=_CONNECT_S),
                headers={"User-Agent": "warren", "Accept-Encoding": "gzip"},
            )
        return client


async def _read_page(answer: Fetched) -> bytes:
    body = bytearray()
    async for piece in answer.body:
        body += piece
        if len(body) > MAX_PAGE:
            raise Unfetched(f"a page of the package index has more than {MAX_PAGE >> 20} MiB")
    return bytes(body)


def _check_status(status: int, host: str) -> None:
    if status in {200, 304}:
        return
    if status in _GONE:
        raise Unfetched(f"the package index at {host} has no such thing", is_missing=True)
    if status in {401, 403}:
        raise Unfetched(f"the package index at {host} answers {status}: the operator may have to give it credentials")
    raise Unfetched(f"the package index at {host} answers {status}: try again later", is_down=status >= 500)


def _check_coding(coding: str) -> None:
    # WHY: decoding may expand data a thousandfold for each coding, and a server may name several.
    if coding.strip().lower() not in _CODINGS:
        raise Unfetched("the package index sent a content coding that was not requested")


def _build_context(ca_files: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for path in ca_files:
        with contextlib.suppress(OSError):
            context.load_verify_locations(cafile=path)
    with contextlib.suppress(ImportError, OSError):
        import certifi

        context.load_verify_locations(cafile=certifi.where())
    return context


async def _look_up(host: str, port: int | None) -> list[Any]:
    try:
        with anyio.fail_after(_CONNECT_S):
            found = await anyio.getaddrinfo(host, port or 443, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        raise Unfetched(f"{host[:100]} cannot be looked up", is_down=True) from None
    return [plain(ipaddress.ip_address(str(each[4][0]).partition("%")[0])) for each in found]
