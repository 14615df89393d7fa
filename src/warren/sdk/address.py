"""Where a service is: over TCP, or at a socket of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from warren.domain.errors import ConfigError
from warren.sdk.environment import URL

API = "/api/v1"


@dataclass(frozen=True, slots=True)
class Address:
    """A service: the URL that its paths are below, and the socket where that is not reached over TCP."""

    url: str
    socket: str | None = None

    @classmethod
    def parse(cls, url: str | None) -> Address:
        """Read a URL, `http:`, `https:` or `unix:`. Raises ConfigError with what to do."""
        if not url:
            raise ConfigError(
                f"no service was named: set {URL} or give url=, such as http://127.0.0.1:8000, where `warren serve` is"
            )
        if url.startswith("unix:"):
            path = url.removeprefix("unix:")
            path = path[2:] if path.startswith("///") else path
            if not path.startswith("/"):
                raise ConfigError(f"{url!r} must name a socket by its whole path, such as unix:/var/lib/warren.sock")
            return cls("http://localhost", path)
        return cls(_check(url))

    @property
    def is_secure(self) -> bool:
        """Whether the connection is encrypted."""
        return self.url.startswith("https:")

    @property
    def public_url(self) -> str:
        """What others put before a path of the service's; empty where they cannot reach it."""
        return self.url if self.socket is None else ""

    @property
    def websocket_url(self) -> str:
        """The same for WebSockets."""
        return "ws" + self.url.removeprefix("http")

    def __str__(self) -> str:
        return self.url if self.socket is None else f"unix:{self.socket}"


def _check(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in {"http", "https"}:
        raise ConfigError(f"{url!r} is no address of a service: write it as http://127.0.0.1:8000 or unix:/path")
    if parts.username is not None:
        raise ConfigError("the URL of the service must not hold a name or password: give the key as api_key=")
    if parts.query or parts.fragment:
        raise ConfigError(f"the URL of the service ends at its path: leave out what follows in {url!r}")
    # People copy the address of the API as well as that of the service.
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/").removesuffix(API)


def encode(part: str) -> str:
    """Write one part of a path: an id or a name."""
    quoted = quote(part.encode("utf-8", "surrogateescape"), safe="-_~.")
    # Proxies on the way resolve . and .. with the part before.
    return quoted.replace(".", "%2E") if part in {".", ".."} else quoted


def encode_path(path: str) -> str:
    """Write the path of a file, slashes and all. Bytes that are no UTF-8 come as Python writes them in names."""
    return "/".join(encode(part) for part in path.split("/"))
