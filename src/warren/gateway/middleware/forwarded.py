"""The client's address behind proxies that the operator trusts.

A client writes anything into `X-Forwarded-For`; each proxy appends the address that it saw. So the list is read from
its end while the addresses are trusted proxies, and the first other address is the client's. `X-Forwarded-Proto` says
whether the client spoke TLS. No header about the host is read: proxies pass `Host`.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

    from starlette.types import ASGIApp, Receive, Scope, Send

MAX_HOPS = 16


def trust_proxies(app: ASGIApp, proxies: Sequence[str]) -> ASGIApp:
    """Trust the forwarding headers of these proxies; without any, of none."""
    return ProxyMiddleware(app, proxies) if proxies else app


class ProxyMiddleware:
    """Replaces a trusted proxy's address by the client's. The outermost layer, before anything logs."""

    def __init__(self, app: ASGIApp, proxies: Iterable[str]) -> None:
        self._app = app
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(each) for each in proxies]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the client's address and scheme."""
        client = scope.get("client")
        if client and scope["type"] in {"http", "websocket"} and self._is_trusted(_parse(client[0])):
            address = self._find(scope["headers"])
            if address is not None:
                scope["client"] = (str(address), 0)
            scope["scheme"] = _find_scheme(scope)
        await self._app(scope, receive, send)

    def _find(self, headers: Iterable[tuple[bytes, bytes]]) -> IPv4Address | IPv6Address | None:
        said = [value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for"]
        found = None
        for text in reversed(",".join(said).split(",")[-MAX_HOPS:]):
            address = _parse(text.strip())
            if address is None:
                break
            found = address
            if not self._is_trusted(address):
                break
        return found

    def _is_trusted(self, address: IPv4Address | IPv6Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


def _find_scheme(scope: Scope) -> str:
    said = [value for name, value in scope["headers"] if name == b"x-forwarded-proto"]
    last = b"".join(said[-1:]).rpartition(b",")[2].strip().lower()
    if last not in {b"http", b"https"}:
        return str(scope["scheme"])
    plain = scope["type"] == "http"
    return {b"http": "http" if plain else "ws", b"https": "https" if plain else "wss"}[last]


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    try:
        # A zone after a percent sign is arbitrary text, and would go into the audit record.
        address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
