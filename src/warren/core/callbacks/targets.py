"""Targets of tool callbacks: which addresses may be called, and the only HTTP client that sends input of sandboxes.

1. Only http and https, to a host that the operator listed, to a public address, or to the address that registered.
2. A name is resolved here, and the address that was checked is connected to: it cannot change in between.
3. Redirects are not followed, proxies of the environment are ignored, and responses are bounded.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

import anyio
from anyio import to_thread

from warren.core.policy.public_addresses import is_ours, is_public, plain
from warren.domain.errors import InvalidRequest

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from warren.core.policy.public_addresses import Address

MAX_ANSWER = 8 << 20
MAX_URL = 2000
_LOOK_UP_S = 5.0
_PORTS = {"http": 80, "https": 443}


class Unreached(Exception):
    """The call failed; the message holds no secret."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A response."""

    status: int
    body: bytes


class Targets:
    """Decides which addresses may be called, and calls them."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._networks = []
        self._context: ssl.SSLContext | None = None
        for host in hosts:
            try:
                self._networks.append(ipaddress.ip_network(host))
            except ValueError:
                self._names.add(host.lower().rstrip("."))

    async def check(self, url: str, peer: str) -> None:
        """Raise InvalidRequest for an address that may not be called. A name may become resolvable later."""
        parts = _split(url)
        if self._is_named(parts):
            return
        try:
            found = await _look_up(parts)
        except Unreached:
            return
        if not any(self._may(address, peer) for address in found):
            # Not the address itself: tenants must not learn what internal names resolve to.
            raise InvalidRequest(
                f"callback_url leads to {parts.hostname}, which is no public address: the operator may list it in the "
                "settings, under callback_hosts"
            )

    async def post(self, url: str, peer: str, *, token: str, content: bytes, timeout_s: float) -> Reached:
        """Post JSON and return the response. Raises Unreached."""
        try:
            with anyio.fail_after(timeout_s):
                address = await self._choose(url, peer)
                return await self._post(url, address, token=token, content=content, timeout_s=timeout_s)
        except TimeoutError:
            raise Unreached("timed out") from None

    async def _choose(self, url: str, peer: str) -> str | None:
        """Return the address to connect to; None where the operator trusts the name."""
        try:
            parts = _split(url)
        except InvalidRequest as error:
            raise Unreached(str(error)) from None
        if self._is_named(parts):
            return None
        for address in await _look_up(parts):
            if self._may(address, peer):
                return str(address)
        raise Unreached("its address is not public, and the operator has not listed it")

    async def _post(self, url: str, address: str | None, *, token: str, content: bytes, timeout_s: float) -> Reached:
        # Imported here: services without tools do not pay for it.
        import httpx

        if self._context is None:
            self._context = await to_thread.run_sync(lambda: httpx.create_ssl_context(trust_env=False))
        target = httpx.URL(url)
        headers = {
            "Host": target.netloc.decode("ascii"),
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            # A few bytes must not expand to many.
            "Accept-Encoding": "identity",
        }
        pinned = target if address is None else target.copy_with(host=address)
        try:
            async with (
                httpx.AsyncClient(
                    verify=self._context, trust_env=False, follow_redirects=False, timeout=timeout_s
                ) as client,
                client.stream(
                    "POST", pinned, content=content, headers=headers, extensions={"sni_hostname": target.host}
                ) as answer,
            ):
                body = bytearray()
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) > MAX_ANSWER:
                        raise Unreached(f"its answer has more than {MAX_ANSWER >> 20} MiB")
                return Reached(answer.status_code, bytes(body))
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise Unreached(_explain(exc)) from exc

    def _is_named(self, parts: SplitResult) -> bool:
        host = (parts.hostname or "").lower().rstrip(".")
        return bool(self._names & {host, f"{host}:{parts.port or _PORTS[parts.scheme]}"})

    def _may(self, address: Address, peer: str) -> bool:
        if any(address in network for network in self._networks):
            return True
        if is_public(address) and not is_ours(address):
            return True
        return bool(peer) and str(address) == peer and not (address.is_loopback or address.is_link_local)


def _split(url: str) -> SplitResult:
    """Split a URL. Raises InvalidRequest for one that would not be called."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    is_plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= MAX_URL
    if parts.scheme not in _PORTS or not host or not is_plain:
        raise InvalidRequest("callback_url must be an http or https address with a host")
    if parts.username is not None:
        raise InvalidRequest("callback_url must not hold a user or password: the token says who calls")
    return parts


async def _look_up(parts: SplitResult) -> list[Address]:
    try:
        with anyio.fail_after(_LOOK_UP_S):
            port = parts.port or _PORTS[parts.scheme]
            found = await anyio.getaddrinfo(parts.hostname or "", port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        raise Unreached("its name cannot be looked up") from None
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    return [plain(address) for address in addresses]


def _explain(exc: Exception) -> str:
    """Return the kind of failure; messages of libraries may hold the URL, and so secrets."""
    kinds = {"ConnectError": "connection refused or impossible", "ConnectTimeout": "timed out"}
    return kinds.get(type(exc).__name__, f"the connection failed ({type(exc).__name__})")
