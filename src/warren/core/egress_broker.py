"""Secrets that a sandbox uses and never has: placeholders become values on the way out, and back on the way in.

1. A value goes to the hosts it is for, over TLS, in a header. Never into a tunnel: nobody sees what is said there.
2. What comes back is looked through, headers and body, as long as it is not encoded: we ask that it be not. A server
   that writes a value in another way (in pieces, backwards, encrypted) can give it away; it is trusted with it.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from anyio import to_thread

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    import h11

    from warren.core.egress_message import Headers, Target
    from warren.core.egress_session import Surroundings
    from warren.egress import Brokered

_BASIC = b"basic "
_TLS_PORT = 443
_PLAIN_PORT = 80


class Broker:
    """The secrets for one host; without any it changes nothing."""

    def __init__(self, secrets: Sequence[Brokered]) -> None:
        self.names = tuple(sorted(secret.name for secret in secrets))
        self._pairs = [(secret.placeholder.encode(), secret.value.encode()) for secret in secrets]

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def port(self, asked: int) -> int:
        """Return the port to connect to: what is plain inside is TLS outside."""
        return _TLS_PORT if self and asked == _PLAIN_PORT else asked

    async def trust(self, around: Surroundings) -> ssl.SSLContext:
        """Return whom to believe over TLS: whom this host does, and whom the operator named."""
        if around.trust is None:
            around.trust = await to_thread.run_sync(_build_trust, around.ca_file)
        return around.trust

    def fill(self, headers: Headers) -> Headers:
        """Put the values where the placeholders are."""
        if not self:
            return headers
        kept = [(name, value) for name, value in headers if name.lower() != b"accept-encoding"]
        filled = [(name, self._fill(value)) for name, value in kept]
        return [*filled, (b"Accept-Encoding", b"identity")]

    def clean_headers(self, headers: Headers, target: Target) -> Headers:
        """Put the placeholders where values are, and lead back to us what leads to the host over TLS."""
        if not self:
            return headers
        secure = b"https://" + target.host.encode()
        cleaned: Headers = []
        for name, value in headers:
            clean = self._clean(value)
            if name.lower() == b"location" and clean.startswith((secure + b"/", secure + b":443/")):
                clean = b"http://" + target.authority + b"/" + clean.removeprefix(b"https://").partition(b"/")[2]
            # What is replaced may have another length.
            if name.lower() != b"content-length":
                cleaned.append((name, clean))
        return cleaned

    def cleaner(self, answer: h11.Response) -> Cleaner | None:
        """Return what looks through a body; None where there is nothing to look for, or it could not be found."""
        if not self or any(name == b"content-encoding" and value != b"identity" for name, value in answer.headers):
            return None
        return Cleaner([(value, placeholder) for placeholder, value in self._pairs if value])

    def _fill(self, value: bytes) -> bytes:
        if value[: len(_BASIC)].lower() == _BASIC:
            try:
                said = base64.b64decode(value[len(_BASIC) :].strip(), validate=True)
            except (binascii.Error, ValueError):
                said = b""
            if any(placeholder in said for placeholder, _ in self._pairs):
                return value[: len(_BASIC)] + base64.b64encode(self._replace(said))
        return self._replace(value)

    def _replace(self, text: bytes) -> bytes:
        for placeholder, secret in self._pairs:
            text = text.replace(placeholder, secret)
        return text

    def _clean(self, text: bytes) -> bytes:
        for placeholder, secret in self._pairs:
            if secret:
                text = text.replace(secret, placeholder)
        return text


class Cleaner:
    """Replaces words in a body that comes in pieces; a word may lie across them."""

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self._pairs = pairs
        self._tail = max((len(word) for word, _ in pairs), default=1) - 1
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Take in a piece and return what is sure by now."""
        text = self._rest + data
        for word, other in self._pairs:
            text = text.replace(word, other)
        keep = min(self._tail, len(text))
        self._rest = text[len(text) - keep :]
        return text[: len(text) - keep]

    def end(self) -> bytes:
        """Return the rest."""
        rest, self._rest = self._rest, b""
        return rest


def _build_trust(ca_file: str) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context()
    if ca_file:
        context.load_verify_locations(ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context
