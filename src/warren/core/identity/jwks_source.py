"""Published key sets, from a file or an address: cached, refreshed, and used while a refresh fails."""

from __future__ import annotations

import logging
import math
import os
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
from anyio import to_thread

from warren.core.identity.jwks import MAX_BYTES, parse_jwks
from warren.core.policy.public_addresses import is_loopback

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Collection

    from warren.core.identity.jwks import TokenKey

_log = logging.getLogger(__name__)

_FETCH_S = 5.0
"""For one fetch in total; and for a request that waits for it."""
# WHY: uncompressed, so that a few bytes cannot expand to many.
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}
FILE_REFRESH_S = 5.0
FILE_COOLDOWN_S = 1.0


class KeySource:
    """The newest keys that were fetched. `run` is a task of the service, and the only one that fetches.

    A request waits for a fetch only if its token names an unknown key. However many tokens arrive, fetches are at least
    `cooldown_s` apart.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[bytes]],
        *,
        refresh_s: float = 300.0,
        cooldown_s: float = 10.0,
        stale_s: float = 86_400.0,
        algorithms: Collection[str] = (),
    ) -> None:
        self.keys: tuple[TokenKey, ...] = ()
        self.generation = 0
        """Changes with the keys; verifications with earlier keys are then dropped."""
        self._load = load
        self._refresh_s = refresh_s
        self._cooldown_s = cooldown_s
        self._stale_s = stale_s
        self._algorithms = algorithms
        self._raw = b""
        self._begun_at = self._loaded_at = -math.inf
        self._is_loading = False
        self._wanted = anyio.Event()
        self._done = anyio.Event()

    async def run(self) -> None:
        """Fetch now, then periodically, and on request."""
        failures = 0
        while True:
            failures = 0 if await self._renew_once() else failures + 1
            pause_s = min(self._cooldown_s * 2 ** min(failures, 10), self._refresh_s) if failures else self._refresh_s
            with anyio.move_on_after(pause_s):
                await self._wanted.wait()
            await anyio.sleep(max(0.0, self._begun_at + self._cooldown_s - time.monotonic()))

    async def renew(self) -> bool:
        """Fetch the keys again, unless that just happened; return whether they changed."""
        if not self._is_loading and time.monotonic() - self._begun_at < self._cooldown_s:
            return False
        before, done = self.generation, self._done
        self._wanted.set()
        with anyio.move_on_after(_FETCH_S):
            await done.wait()
        return self.generation != before

    @property
    def is_ready(self) -> bool:
        """Whether there are keys: not before the first fetch, nor after fetches failed for too long."""
        return bool(self.keys)

    async def _renew_once(self) -> bool:
        self._begun_at = time.monotonic()
        self._is_loading = True
        try:
            with anyio.fail_after(_FETCH_S):
                raw = await self._load()
            self._take(raw)
        except Exception as error:  # noqa: BLE001 - whatever an issuer answers, the service lives on with the last keys
            self._keep_former(error)
            return False
        finally:
            self._is_loading = False
            self._wanted = anyio.Event()
            self._done.set()
            self._done = anyio.Event()
        return True

    def _take(self, raw: bytes) -> None:
        if raw != self._raw or not self.keys:
            self.keys = parse_jwks(raw, self._algorithms)
            self._raw = raw
            self.generation += 1
            _log.info("jwks.loaded", extra={"keys": len(self.keys)})
        self._loaded_at = time.monotonic()

    def _keep_former(self, error: Exception) -> None:
        is_stale = bool(self.keys) and time.monotonic() - self._loaded_at > self._stale_s
        if is_stale:
            self.keys = ()
            self.generation += 1
        # Foreign messages may quote the response: only our own sentences are logged.
        reason = (str(error) if isinstance(error, OSError | ValueError) else "") or type(error).__name__
        _log.warning("jwks.load_failed", extra={"reason": reason, "keys": len(self.keys)})


def check_url(url: str) -> str:
    """Return the address of a key set. Raises ValueError unless its transport is protected from changes."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as exc:
        raise ValueError(f"{url[:100]!r} is not a valid URL") from exc
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise ValueError(f"{url[:100]!r} must begin with https://: a changed key set could sign any token")
    if not host or parts.username is not None:
        raise ValueError("the address of a key set has a host, and no user or password")
    return url


def load_url(url: str) -> Callable[[], Awaitable[bytes]]:
    """Return a function that fetches a key set from exactly that address, within the size limit."""
    # A proxy of the environment is for the outside, not for this machine.
    is_outside = not is_loopback(urlsplit(url).hostname or "")
    context: ssl.SSLContext | None = None

    def prepare() -> ssl.SSLContext:
        # Imported here: it takes 0.1 s, which services without a key set do not pay.
        import httpx

        return httpx.create_ssl_context(trust_env=is_outside)

    async def load() -> bytes:
        nonlocal context
        if context is None:
            context = await to_thread.run_sync(prepare)
        import httpx

        try:
            async with (
                httpx.AsyncClient(
                    verify=context, follow_redirects=False, trust_env=is_outside, timeout=_FETCH_S
                ) as client,
                client.stream("GET", url, headers=_HEADERS) as answer,
            ):
                if answer.status_code != 200:
                    raise ValueError(f"the key set's address answers {answer.status_code}, and must answer 200")
                raw = b""
                async for piece in answer.aiter_raw(16_384):
                    raw += piece
                    if len(raw) > MAX_BYTES:
                        raise ValueError(f"the key set has more than {MAX_BYTES >> 10} KiB")
                return raw
        except httpx.HTTPError as exc:
            raise OSError(f"the key set cannot be fetched: {type(exc).__name__}") from exc

    return load


def load_file(path: str) -> Callable[[], Awaitable[bytes]]:
    """Return a function that reads a key set from a file."""

    async def load() -> bytes:
        return await to_thread.run_sync(read_bounded, path)

    return load


def read_bounded(path: str) -> bytes:
    """Read a small file. Raises OSError, and ValueError for a large one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ValueError(f"{path} has more than {MAX_BYTES >> 10} KiB")
    return raw
