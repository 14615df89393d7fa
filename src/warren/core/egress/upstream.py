"""Upstream proxy of the operator: every egress connection goes through it by CONNECT.

The proxy resolves names, so addresses are known here only if this host resolves the name too. A name that it cannot
resolve is decided by its spelling: see `egress_rules.decide_by_name`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import anyio

from warren.core.egress.dialer import CONNECT_S, PlainOutside, Unreached, race, secure

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from warren.core.egress.dialer import Outside

_MAX_HEAD = 16 << 10
_PORT = 3128
LOOK_S = 1.0
"""For resolving a name on this host as well. Where only the proxy can resolve, no resolver may answer at all."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """Address and credentials of the proxy."""

    host: str
    port: int
    authorization: str = field(repr=False)


def parse_upstream(url: str) -> Upstream | None:
    """Parse the address of the proxy; None for an empty one. Raises ValueError."""
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError("write http://host:port, with user:password@ before the host if it asks for them")
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username is not None else ""
    authorization = f"Basic {base64.b64encode(pair.encode()).decode()}" if pair else ""
    return Upstream(parts.hostname, parts.port or _PORT, authorization)


async def connect_through(
    upstream: Upstream, where: Sequence[str], host: str, port: int, tls: ssl.SSLContext | None
) -> Outside:
    """Connect to a host through the proxy at one of these addresses. Raises Unreached."""
    try:
        with anyio.fail_after(CONNECT_S):
            sock, _ = await race(where, upstream.port)
            outside = PlainOutside(sock, "")
            try:
                await _ask(outside, upstream, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
                return outside if tls is None else await secure(outside, host, tls)
            except BaseException:
                await outside.aclose()
                raise
    except TimeoutError:
        raise Unreached(
            f"{host}:{port} did not answer in {CONNECT_S:g} s through the operator's proxy: try again.", is_late=True
        ) from None
    except OSError:
        raise Unreached(
            f"{host}:{port} cannot be reached: the operator's proxy (egress.upstream_proxy) does not answer."
        ) from None


async def _ask(outside: PlainOutside, upstream: Upstream, target: str) -> None:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if upstream.authorization:
        lines.append(f"Proxy-Authorization: {upstream.authorization}")
    await outside.send("\r\n".join([*lines, "", ""]).encode("ascii"))
    said = b""
    while b"\r\n\r\n" not in said:
        piece = await outside.receive()
        said += piece
        if not piece or len(said) > _MAX_HEAD:
            raise ConnectionResetError
    head, _, rest = said.partition(b"\r\n\r\n")
    version, _, status = head.split(b"\r\n", 1)[0].partition(b" ")
    if not version.startswith(b"HTTP/1.") or not status[:3].isdigit():
        raise ConnectionResetError
    if not status.startswith(b"2"):
        code = status[:3].decode("ascii")
        remedy = "the operator has to give it credentials" if code == "407" else "ask the operator"
        raise Unreached(f"{target} cannot be reached: the operator's proxy answers {code}, {remedy}.")
    outside.put_back(rest)
