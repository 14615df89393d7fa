# Made from src/warren/sdk/_async/client.py by `make sdk`: change that instead.
"""The client: everything that a service offers begins here."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from warren.domain.errors import Error, NotFound
from warren.sdk._sync.connection import Connection
from warren.sdk._sync.images import build_image, get_image
from warren.sdk._sync.renders import Renders
from warren.sdk._sync.sandboxes import Sandboxes
from warren.sdk._sync.skills import Skills
from warren.sdk.address import encode
from warren.sdk.io_sync import shielded
from warren.sdk.options import AuditOptions, OneShotOptions, build_body, input_files, read_timeout, what_to_run
from warren.sdk.request import Request, api
from warren.sdk.results import build_one_shot
from warren.sdk.retries import Retries
from warren.sdk.values import build, build_page
from warren.sdk.values_images import Image
from warren.sdk.values_service import AuditRow, Health

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    import httpx

    from warren.sdk._sync.sandbox import Sandbox
    from warren.sdk.content import Uploadable
    from warren.sdk.options import SandboxOptions
    from warren.sdk.results import OneShotResult
    from warren.sdk.values import Page
    from warren.sdk.values_images import Build


class Client:
    """A client of one service.

    `url` and `api_key` are those of WARREN_URL and WARREN_API_KEY unless given; `unix:/path` is a URL too. `timeout` is
    for how long a request may be without an answer, which runs of code are not bound by. Close it, or use it in `with`.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int | Retries = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        how_often = retries if isinstance(retries, Retries) else Retries(most=retries)
        self._connection = Connection(url, api_key, timeout=timeout, retries=how_often, transport=transport)
        self.sandboxes = Sandboxes(self._connection)
        """All sandboxes: to make, find and list them."""
        self.renders = Renders(self._connection)
        """Presentations of pages."""
        self.skills = Skills(self._connection)
        """The skills that the service keeps for you."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._connection.address)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._connection.close()

    @property
    def url(self) -> str:
        """Where the service is."""
        return str(self._connection.address)

    @contextlib.contextmanager
    def sandbox(self, **options: Unpack[SandboxOptions]) -> Iterator[Sandbox]:
        """Make a sandbox for a `with` block, and remove it at its end. Raises Error."""
        made = self.sandboxes.create(**options)
        try:
            yield made
        except BaseException:
            # What went wrong in the block is what its caller must hear of.
            with shielded():
                with contextlib.suppress(Error):
                    made.delete()
            raise
        with contextlib.suppress(NotFound):
            made.delete()

    def run(
        self,
        code: str | None = None,
        *,
        command: str | Sequence[str] | None = None,
        files: Mapping[str, Uploadable] | None = None,
        **options: Unpack[OneShotOptions],
    ) -> OneShotResult:
        """Run something in a sandbox of its own, which is gone afterwards; files go in and come back. Raises Error."""
        body = build_body(options, OneShotOptions, **what_to_run(code, command), files=input_files(files) or None)
        limit = read_timeout(body, self._connection.timeout)
        return build_one_shot(self._connection.ask_json(api("POST", "run", json=body, read_timeout_s=limit)))

    def images(self) -> tuple[Image, ...]:
        """List the images that sandboxes are made from. Raises Error."""
        found = self._connection.ask_json(api("GET", "images"))
        return tuple(build(Image, each) for each in found["items"])

    def image(self, name: str) -> Image:
        """Find an image, and how far its build is. Raises NotFound and other Errors."""
        return get_image(self._connection, name)

    def build_image(self, name: str, *, wait: bool = True, progress: Callable[[Build], object] | None = None) -> Image:
        """Build an image, as admin; it goes on also when nobody waits. Raises BuildFailed and other Errors."""
        return build_image(self._connection, name, wait=wait, progress=progress)

    def remove_image(self, name: str, *, stale_only: bool = False) -> int:
        """Delete the builds of an image, as admin, or only the earlier ones; returns the bytes freed. Raises Error."""
        request = api("DELETE", "images", encode(name), params={"stale_only": stale_only})
        return int((self._connection.ask_json(request))["freed_bytes"])

    def audit(self, *, offset: int = 0, limit: int = 100, **query: Unpack[AuditOptions]) -> Page[AuditRow]:
        """Read the audit record, newest first: all of it as admin, else what you did yourself. Raises Error."""
        params = build_body(query, AuditOptions, offset=offset, limit=limit)
        found = self._connection.ask_json(api("GET", "audit", params=params))
        return build_page(found, lambda row: build(AuditRow, row))

    def health(self) -> Health:
        """Ask how the service is; bad news is an answer, too. Raises Error where there is none."""
        answer = self._connection.ask(Request(method="GET", path="/healthz", accepts=(503,)))
        return build(Health, answer.json())

    def health_details(self) -> dict[str, Any]:
        """Ask how everything in the service is, as admin. Raises Error."""
        request = Request(method="GET", path="/healthz/details", accepts=(503,))
        found: dict[str, Any] = self._connection.ask_json(request)
        return found

    def is_ready(self) -> bool:
        """Whether the service takes work. Raises Error where there is none."""
        answer = self._connection.ask(Request(method="GET", path="/readyz", accepts=(503,)))
        return answer.status_code == 200

    def ping(self) -> None:
        """See whether a service is there. Raises Error."""
        self._connection.ask(Request(method="GET", path="/livez"))

    def metrics(self) -> str:
        """Read the service's numbers, as Prometheus does. Raises Error."""
        return (self._connection.ask(Request(method="GET", path="/metrics"))).text
