"""Static files: content types of our own choice, revalidation by ETag, and the documentation site as a folder of them.

Every answer is `no-cache` with an ETag: a browser asks again and gets 304, so that an upgrade is seen at once.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import to_thread

from warren.gateway.api.operations import Reply
from warren.gateway.pages.html import hash_source, prefers_html

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

# WHY: the table of the host decides what `mimetypes` says, and with `nosniff` a browser runs no script of a wrong type.
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".xml": "application/xml",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".ico": "image/vnd.microsoft.icon",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}
_INLINE_SCRIPT = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)
_SITE_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    """One file as an answer, or as 304 to a browser that has it."""

    content: bytes
    name: str
    """Its suffix decides the content type."""
    policy: str | None = None
    """The Content-Security-Policy; None: the one of all answers, under which nothing is active."""
    is_gzip: bool = False
    """Whether `content` is compressed; a client that does not take gzip gets it unpacked."""
    status: int = 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        etag = f'W/"{hashlib.sha256(self.content).hexdigest()[:32]}"'.encode()
        kind = _TYPES.get(os.path.splitext(self.name)[1], "application/octet-stream")
        headers = [(b"etag", etag), (b"cache-control", b"no-cache")]
        if self.policy is not None:
            headers.append((b"content-security-policy", self.policy.encode()))
        if self.is_gzip:
            headers.append((b"vary", b"accept-encoding"))
        if self.status == 200 and _is_named(etag, _read_header(scope, b"if-none-match")):
            await Reply(b"", 304, tuple(headers))(scope, receive, send)
            return
        content = self.content
        if self.is_gzip and _takes_gzip(_read_header(scope, b"accept-encoding")):
            headers.append((b"content-encoding", b"gzip"))
        elif self.is_gzip:
            content = gzip.decompress(content)
        headers.append((b"content-type", kind.encode()))
        await Reply(content, self.status, tuple(headers))(scope, receive, send)


class Site:
    """The documentation site that `make docs-site` builds, below `/docs/`."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)

    @property
    def exists(self) -> bool:
        """Whether a site was built."""
        return os.path.isfile(os.path.join(self._folder, "index.html"))

    async def find(self, name: str, headers: list[tuple[bytes, bytes]]) -> StaticFile | Reply | None:
        """Return the file, a redirect to the folder, the site's page for a browser that is lost, or None."""
        return await to_thread.run_sync(self._find, name, prefers_html(headers))

    def _find(self, name: str, is_browser: bool) -> StaticFile | Reply | None:
        path = self._locate(name)
        if path is not None and os.path.isdir(path):
            if name and not name.endswith("/"):
                return Reply(b"", 307, ((b"location", b"./%s/" % os.path.basename(name).encode()),))
            path = os.path.join(path, "index.html")
        found = None if path is None else self._read(path)
        if found is None and is_browser:
            return self._read(os.path.join(self._folder, "404.html"), status=404)
        return found

    def _locate(self, name: str) -> str | None:
        """Return where a file would be."""
        try:
            # SAFE BECAUSE: links are resolved first, and a path that leaves the folder is refused.
            path = os.path.realpath(os.path.join(self._folder, name))
        except (OSError, ValueError):
            return None
        return path if path == self._folder or path.startswith(self._folder + os.sep) else None

    def _read(self, path: str, status: int = 200) -> StaticFile | None:
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            return None
        # The site's generator writes a few inline scripts; each is allowed by its hash, and no other.
        inline = _INLINE_SCRIPT.findall(content) if path.endswith(".html") else ()
        scripts = dict.fromkeys(("'self'", *map(hash_source, inline)))
        # WHY for every file: the policy of other answers has `sandbox`, under which no search worker starts.
        policy = _SITE_POLICY.format(scripts=" ".join(scripts))
        return StaticFile(content=content, name=path, policy=policy, status=status)


def _is_named(etag: bytes, listed: bytes) -> bool:
    """Whether If-None-Match names it: `*`, or its tag in weak comparison."""
    tags = [each.strip().removeprefix(b"W/") for each in listed.split(b",")]
    return b"*" in tags or etag.removeprefix(b"W/") in tags


def _takes_gzip(listed: bytes) -> bool:
    """Whether Accept-Encoding names gzip, and not with a quality of 0."""
    for each in listed.lower().split(b","):
        name, *parameters = (part.strip() for part in each.split(b";"))
        if name in {b"gzip", b"x-gzip"}:
            return not any(re.fullmatch(rb"q\s*=\s*0(\.0*)?", part) for part in parameters)
    return False


def _read_header(scope: Scope, wanted: bytes) -> bytes:
    return b",".join(value for name, value in scope["headers"] if name == wanted)
