"""HTTP heads as the egress proxy forwards them. Pure: values in, values out.

1. h11 frames both sides separately: a body of one side is never a request to the other.
2. The host in the request target counts. A different `Host`, and anything that two servers may parse differently, is
   refused.
3. Hop-by-hop headers stay on their connection. Nothing is added: no `Via`, no address of the sandbox.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.core.policy.egress_hosts import parse_host

if TYPE_CHECKING:
    from collections.abc import Iterable

    import h11

Headers = list[tuple[bytes, bytes]]

MAX_HEAD = 64 << 10
VERSIONS = (b"1.0", b"1.1")
_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"upgrade", b"http2-settings", b"proxy-authentication-info"),
    }
)
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"host"})
_PORT = re.compile(r"[0-9]{1,5}")
_REASON = re.compile(r"[^\x20-\x7e]")


class BadRequest(ValueError):
    """A request that cannot be forwarded; the sentence is for the program."""


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of a request."""

    host: str
    """In canonical spelling."""
    port: int
    path: bytes
    authority: bytes
    """As the program wrote it, for the `Host` of the forwarded request."""


def read_authority(text: str, default: int | None) -> tuple[str, int]:
    """Split `host:port`; the host in canonical spelling. Raises BadRequest."""
    host, port = text, ""
    if text.startswith("["):
        host, closed, port = text.partition("]")
        host, is_odd = f"{host}]", not closed or (bool(port) and not port.startswith(":"))
        port = port[1:]
    else:
        host, colon, port = text.partition(":")
        is_odd = bool(colon) and not port and default is None
    if is_odd or (port and not _PORT.fullmatch(port)) or (not port and default is None):
        raise BadRequest("the host must be a name or an address, with a port where it has one")
    number = int(port) if port else default or 0
    try:
        name = parse_host(host).text
    except ValueError:
        raise BadRequest("the host is neither a name nor an address that can be reached") from None
    if not 1 <= number <= 65_535:
        raise BadRequest("the port must be between 1 and 65535")
    return name, number


def read_target(request: h11.Request, within: tuple[str, int] | None = None) -> Target:
    """Return the destination of a request; within a tunnel, that of the tunnel. Raises BadRequest."""
    _check_framing(request)
    target = request.target
    if within is None:
        scheme, _, rest = target.partition(b"://")
        if scheme.lower() != b"http":
            raise BadRequest(
                "this is the egress proxy of the sandbox: request http://host/path from it, or CONNECT for TLS"
            )
        authority, path = _split(rest)
    else:
        if not target.startswith(b"/"):
            raise BadRequest("a request within a tunnel must have a path as its target")
        authority, path = _authority(*within), target
    if b"@" in authority or b"#" in path or not authority:
        raise BadRequest("the address must hold no user, password or fragment: send those as headers")
    host, port = read_authority(authority.decode("ascii"), 80)
    _check_host(request, host, port)
    return Target(host, port, path, authority)


def request_headers(request: h11.Request, target: Target, *, upgrade: bool) -> Headers:
    """Build the headers of a request for the server."""
    passed: Headers = [(b"Host", target.authority)]
    passed += _passed(request.headers.raw_items(), frozenset({b"host"}))
    if upgrade:
        passed += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
    return passed


def answer_headers(answer: h11.Response | h11.InformationalResponse, *, upgrade: bool = False) -> Headers:
    """Build the headers of a response for the program."""
    passed = _passed(answer.headers.raw_items(), frozenset())
    if any(name.lower() == b"transfer-encoding" for name, _ in passed):
        passed = [(name, value) for name, value in passed if name.lower() != b"content-length"]
    if upgrade:
        passed += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
    return passed


def wants_upgrade(request: h11.Request) -> bool:
    """Whether a request asks for a WebSocket, the only upgrade that is forwarded."""
    says = {name: value.lower() for name, value in request.headers}
    named = {each.strip() for each in says.get(b"connection", b"").split(b",")}
    return request.method == b"GET" and b"upgrade" in named and says.get(b"upgrade", b"").strip() == b"websocket"


def reason(sentence: str) -> bytes:
    """Build a reason phrase. Many clients show nothing else of a failed CONNECT, and installers of any response."""
    return _REASON.sub("?", sentence)[:300].encode("ascii")


def _split(rest: bytes) -> tuple[bytes, bytes]:
    end = next((at for at, each in enumerate(rest) if each in b"/?#"), len(rest))
    authority, path = rest[:end], rest[end:]
    return authority, path if path.startswith(b"/") else b"/" + path


def _authority(host: str, port: int) -> bytes:
    name = f"[{host}]" if ":" in host else host
    return (name if port == 80 else f"{name}:{port}").encode("ascii")


def _check_framing(request: h11.Request) -> None:
    names = [name for name, _ in request.headers]
    if request.http_version not in VERSIONS:
        raise BadRequest("the version of HTTP must be 1.0 or 1.1")
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version == b"1.0"):
        raise BadRequest("a request has one length: Content-Length or Transfer-Encoding, not both")
    if names.count(b"transfer-encoding") > 1 or names.count(b"content-length") > 1:
        raise BadRequest("a request has one length, said once")


def _check_host(request: h11.Request, host: str, port: int) -> None:
    said = [value for name, value in request.headers if name == b"host"]
    if len(said) > 1:
        raise BadRequest("a request has one Host")
    for value in said:
        try:
            same = read_authority(value.decode("ascii"), 80) == (host, port)
        except (BadRequest, UnicodeDecodeError):
            same = False
        if not same:
            raise BadRequest("the Host of a request must be the host of its address")


def _passed(headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes]) -> Headers:
    listed = list(headers)
    said = b",".join(value for name, value in listed if name.lower() == b"connection")
    # Framing headers are the proxy's: naming them in `Connection` does not remove them.
    named = frozenset(each.strip().lower() for each in said.split(b",")) - _FRAMING
    return [(name, value) for name, value in listed if name.lower() not in _HOP | named | dropped]
