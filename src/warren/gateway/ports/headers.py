"""Headers between a browser and a server inside a sandbox, in both directions. Pure: values in, values out.

Rule 1. Nothing of ours goes in: no key, no token of ours, no cookie that the server itself did not set.
Rule 2. Nothing comes out that would act on more than the address it was served at: what is inside shares our origin,
and often our host with others. Pages get an origin of their own (`sandbox`), cookies their own path and a name apart.
Rule 3. What belongs to one connection stays on it: the two sides are framed apart, so nothing is smuggled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from warren.core.identity.token_rules import SHAPE
from warren.gateway.api.auth import read_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Headers = list[tuple[bytes, bytes]]

AUTHORIZATION = b"x-warren-authorization"
"""The client's `Authorization` for the server inside; `Authorization` itself is for us."""
COOKIE_PREFIX = b"warren-port-"
"""Prefix, outside, of each cookie that a server inside sets: no other cookie is ever sent to it."""
LINK_COOKIE = b"warren-link"
"""Holds the token of a link, at the host of a server's own."""
POLICY = b"sandbox allow-downloads allow-forms allow-modals allow-pointer-lock allow-popups allow-scripts"
"""Pages may do what pages do, but not as our origin."""

_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings"),
    }
)
_NOT_IN = _HOP | {
    *(b"host", b"authorization", b"x-api-key", AUTHORIZATION, b"cookie", b"referer", b"expect", b"origin"),
    *(b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-prefix", b"x-forwarded-proto"),
    *(b"x-forwarded-port", b"x-real-ip", b"x-request-id", b"content-length"),
}
_NOT_OUT = _HOP | {
    *(b"date", b"content-length", b"x-request-id"),
    # These apply to our whole origin or host.
    *(b"alt-svc", b"clear-site-data", b"strict-transport-security", b"public-key-pins", b"expect-ct"),
    *(b"nel", b"report-to", b"reporting-endpoints", b"service-worker-allowed", b"origin-agent-cluster"),
    *(b"accept-ch", b"critical-ch", b"set-login", b"activate-storage-access", b"use-as-dictionary"),
    *(b"sec-session-registration", b"secure-session-registration"),
    # These are orders to a reverse proxy in front of us.
    *(b"x-sendfile", b"x-lighttpd-send-file", b"x-litespeed-location", b"x-reproxy-url"),
}
_NOT_OUT_PREFIXES = (b"x-accel-", b"warren-", b"x-warren-", b"proxy-")
_SAME_FOR_ALL = (
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    # The address of a page may hold the token of a link.
    (b"referrer-policy", b"no-referrer"),
    # A page with an origin of its own must be able to load its own parts.
    (b"cross-origin-resource-policy", b"cross-origin"),
)
_SAID_BY_US = frozenset({b"x-content-type-options", b"referrer-policy", b"cross-origin-resource-policy"})
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 - what servers call themselves
_KEPT_OF_COOKIES = frozenset({b"expires", b"max-age", b"secure", b"httponly", b"samesite", b"partitioned"})
_COOKIE_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_KEY = re.compile(r"\bwrn_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Mount:
    """The outside address of a server inside."""

    prefix: str
    """The path before the server's own, without a slash at its end."""
    port: int
    is_link: bool = False
    """Whether the address alone opens it, so that a browser can show it."""
    has_host: bool = False
    """Whether it has a host of its own, to which its headers may then apply."""
    takes_tokens: bool = False
    """Whether a JSON Web Token may be one of ours."""

    @property
    def gives_no_origin(self) -> bool:
        """Whether its pages have no origin: they are sandboxed."""
        return self.is_link and not self.has_host

    @property
    def host(self) -> str:
        """The `Host` that the server gets; development servers accept no other name."""
        return f"localhost:{self.port}"


def headers_in(headers: Sequence[tuple[bytes, bytes]], mount: Mount, scheme: str, request_id: str) -> Headers:
    """Build the headers of a request as the server inside gets them, but for those of its framing."""
    dropped = _NOT_IN | _named(headers)
    passed: Headers = [(b"host", mount.host.encode())]
    passed += [(name, value) for name, value in headers if name not in dropped]
    passed += _authorization(headers, mount)
    outside = b""
    for name, value in headers:
        if name == b"cookie":
            passed += [(b"cookie", kept)] if (kept := cookies_in(value, mount)) else []
        elif name == b"host":
            outside = value
    passed += [(b"origin", _origin_in(value, outside, mount)) for name, value in headers if name == b"origin"]
    passed += [
        (b"x-forwarded-host", outside),
        (b"x-forwarded-proto", {"ws": "http", "wss": "https"}.get(scheme, scheme).encode()),
        (b"x-request-id", request_id.encode()),
    ]
    return [*passed, (b"x-forwarded-prefix", mount.prefix.encode())] if mount.prefix else passed


def headers_out(headers: Iterable[tuple[bytes, bytes]], mount: Mount, *, origin: bytes | None = None) -> Headers:
    """Build the headers of an answer as a client gets them, but for those of its framing."""
    listed = list(headers)
    dropped = _NOT_OUT | _named(listed) | (frozenset() if mount.has_host else _SAID_BY_US)
    passed: Headers = []
    for name, value in listed:
        if name in dropped or name.startswith(_NOT_OUT_PREFIXES):
            continue
        if name == b"set-cookie":
            passed += [(name, kept)] if (kept := cookie_out(value, mount)) else []
        elif name in {b"location", b"content-location"}:
            passed.append((name, location_out(value, mount)))
        else:
            passed.append((name, value))
        if name == b"content-type" and value.lower().startswith(b"text/event-stream"):
            passed.append((b"x-accel-buffering", b"no"))
    if mount.has_host:
        return passed
    is_allowed = any(name == b"access-control-allow-origin" for name, _ in passed)
    if mount.gives_no_origin and origin == b"null" and not is_allowed:
        passed += [(b"access-control-allow-origin", b"null"), (b"vary", b"origin")]
    return [*passed, *_SAME_FOR_ALL]


def content_length(headers: Iterable[tuple[bytes, bytes]], status: int) -> Headers:
    """Build `Content-Length`, where the length is known and the answer has a body."""
    listed = list(headers)
    if status in {204, 304} or any(name == b"transfer-encoding" for name, _ in listed):
        return []
    return [(name, value) for name, value in listed if name == b"content-length"][:1]


def cookies_in(value: bytes, mount: Mount) -> bytes:
    """Return the cookies that the server inside set, under its own names; at a host of its own, all but ours."""
    pairs = [each.strip() for each in value.split(b";")]
    if mount.has_host:
        return b"; ".join(each for each in pairs if each.partition(b"=")[0] != LINK_COOKIE)
    return b"; ".join(each.removeprefix(COOKIE_PREFIX) for each in pairs if each.startswith(COOKIE_PREFIX))


def cookie_out(value: bytes, mount: Mount) -> bytes | None:
    """Confine a cookie to the server's own path, under a prefixed name."""
    pair, *attributes = (each.strip() for each in value.split(b";"))
    name, equals, content = pair.partition(b"=")
    if not equals or not _COOKIE_NAME.fullmatch(name.strip()):
        return None
    path, kept = b"/", []
    for attribute in attributes:
        key, _, said = attribute.partition(b"=")
        if key.strip().lower() == b"path" and said.strip().startswith(b"/"):
            path = said.strip()
        elif key.strip().lower() in _KEPT_OF_COOKIES:
            kept.append(attribute)
    own, name = mount.prefix.encode(), name.strip() if mount.has_host else COOKIE_PREFIX + name.strip()
    path = path if path.startswith(own + b"/") else own + path
    return None if name == LINK_COOKIE else b"; ".join([name + b"=" + content, b"Path=" + path, *kept])


def location_out(value: bytes, mount: Mount) -> bytes:
    """Translate an address of the server inside to its outside address; others stay as they are."""
    text = value.decode("latin-1")
    own = mount.prefix
    if text.startswith("/") and not text.startswith(("//", "/\\")):
        return (text if text == own or text.startswith((f"{own}/", f"{own}?")) else own + text).encode("latin-1")
    try:
        parts = urlsplit(text)
        is_inside = parts.scheme in {"http", "https"} and parts.hostname in _LOCAL and parts.port == mount.port
    except ValueError:
        return value
    if not is_inside:
        return value
    rest = text.partition("//")[2]
    start = next((at for at, each in enumerate(rest) if each in "/?#"), len(rest))
    tail = rest[start:]
    return (own + (tail if tail.startswith("/") else f"/{tail}")).encode("latin-1")


def is_service_worker(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a browser asks for a service worker, which would answer for other addresses of ours."""
    return any(name == b"service-worker" for name, _ in headers)


def _authorization(headers: Sequence[tuple[bytes, bytes]], mount: Mount) -> Iterator[tuple[bytes, bytes]]:
    """Yield the client's credentials for the server inside, never those for us."""
    given = [value for name, value in headers if name == AUTHORIZATION]
    if not given and mount.is_link and not _may_be_ours(headers, mount):
        given = [value for name, value in headers if name == b"authorization"]
    yield from ((b"authorization", value) for value in given[:1])


def _may_be_ours(headers: Sequence[tuple[bytes, bytes]], mount: Mount) -> bool:
    """Whether credentials have the shape of ours, although a link asks for none: many clients always send theirs."""
    spelled = [value.decode("latin-1") for name, value in headers if name == b"authorization"]
    is_token = mount.takes_tokens and SHAPE.fullmatch(read_secret(headers) or "") is not None
    return is_token or any(map(_KEY.search, spelled))


def _origin_in(origin: bytes, outside: bytes, mount: Mount) -> bytes:
    """Translate the origin of the server's own pages; other origins stay."""
    is_own = origin == b"null" or (bool(outside) and origin.partition(b"://")[2] == outside)
    return f"http://{mount.host}".encode() if is_own else origin


def _named(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the headers that `Connection` says are for this connection only."""
    said = b",".join(value for name, value in headers if name == b"connection")
    return frozenset(each.strip().lower() for each in said.split(b",")) - {b""}
