# Made from src/warren/sdk/_async/client.py by `make sdk`: change that instead.
"""The client of one service."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from warren.domain.errors import BuildFailed, Error, NotFound
from warren.sdk._sync.connection import Connection
from warren.sdk._sync.renders import Renders
from warren.sdk._sync.sandboxes import Sandboxes
from warren.sdk._sync.skills import Skills
from warren.sdk.address import encode
from warren.sdk.io_sync import shielded, sleep
from warren.sdk.options import AuditOptions, OneShotOptions, build_body, input_files, read_timeout, what_to_run
from warren.sdk.request import Request, api
from warren.sdk.results import build_one_shot
from warren.sdk.retries import Retries
from warren.sdk.values import build, build_page
from warren.sdk.values_service import AuditRow, Health, Image

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
    from warren.sdk.values_service import Build

_LOOK_S = 0.5
"""Between two looks at the progress of a build."""


class Client:
    """A client of one service.

    `url` and `api_key` default to WARREN_URL and WARREN_API_KEY; `unix:/path` is a URL too. `timeout` limits the wait
    for an answer, in seconds, except for runs of code. Close it, or use it in `with`.
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
        """Creates, finds and lists sandboxes."""
        self.renders = Renders(self._connection)
        """Renders pages to presentations."""
        self.skills = Skills(self._connection)
        """Your skills, and shared ones."""

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
        """The address of the service."""
        return str(self._connection.address)

    @contextlib.contextmanager
    def sandbox(self, **options: Unpack[SandboxOptions]) -> Iterator[Sandbox]:
        """Create a sandbox for a `with` block, and delete it at its end. Raises Error."""
        made = self.sandboxes.create(**options)
        try:
            yield made
        except BaseException:
            # An exception of the block must reach the caller, not one of the cleanup.
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
        """Run something in a sandbox of its own, deleted afterwards; files go in and come back. Raises Error."""
        body = build_body(options, OneShotOptions, **what_to_run(code, command), files=input_files(files) or None)
        limit = read_timeout(body, self._connection.timeout)
        return build_one_shot(self._connection.ask_json(api("POST", "run", json=body, read_timeout_s=limit)))

    def images(self) -> tuple[Image, ...]:
        """List the images that sandboxes are made from. Raises Error."""
        return self._connection.ask_all(Image, api("GET", "images"))

    def image(self, name: str) -> Image:
        """Get an image, and the progress of its build. Raises NotFound and other Errors."""
        return self._connection.ask_for(Image, api("GET", "images", encode(name)))

    def build_image(self, name: str, *, wait: bool = True, progress: Callable[[Build], object] | None = None) -> Image:
        """Build an image, as admin; the build goes on when the client leaves. Raises BuildFailed and other Errors."""
        request = api("POST", "images", encode(name), "build", repeatable=True)
        image = self._connection.ask_for(Image, request)
        while wait and image.state == "building":
            if progress is not None and image.build is not None:
                progress(image.build)
            sleep(_LOOK_S)
            image = self.image(name)
        if wait and image.state != "built":
            why = None if image.build is None else image.build.error
            raise BuildFailed(why or f"image {name} was not built to the end: begin again")
        return image

    def remove_image(self, name: str, *, stale_only: bool = False) -> int:
        """Delete the builds of an image, as admin, or only the earlier ones; returns the bytes freed. Raises Error."""
        request = api("DELETE", "images", encode(name), params={"stale_only": stale_only})
        return int((self._connection.ask_json(request))["freed_bytes"])

    def audit(self, *, offset: int = 0, limit: int = 100, **query: Unpack[AuditOptions]) -> Page[AuditRow]:
        """List the audit record, newest first: all of it as admin, else your own rows. Raises Error."""
        params = build_body(query, AuditOptions, offset=offset, limit=limit)
        found = self._connection.ask_json(api("GET", "audit", params=params))
        return build_page(found, lambda row: build(AuditRow, row))

    def health(self) -> Health:
        """Get the health of the service; `degraded` is an answer, not an error. Raises Error where none answers."""
        answer = self._connection.ask(Request(method="GET", path="/healthz", accepts=(503,)))
        return build(Health, answer.json())

    def health_details(self) -> dict[str, Any]:
        """Get the state of every part of the service, as admin. Raises Error."""
        request = Request(method="GET", path="/healthz/details", accepts=(503,))
        found: dict[str, Any] = self._connection.ask_json(request)
        return found

    def is_ready(self) -> bool:
        """Whether the service takes work. Raises Error where none answers."""
        answer = self._connection.ask(Request(method="GET", path="/readyz", accepts=(503,)))
        return answer.status_code == 200

    def ping(self) -> None:
        """Check that a service answers. Raises Error."""
        self._connection.ask(Request(method="GET", path="/livez"))

    def metrics(self) -> str:
        """Get the metrics of the service, in Prometheus' text format. Raises Error."""
        return (self._connection.ask(Request(method="GET", path="/metrics"))).text
