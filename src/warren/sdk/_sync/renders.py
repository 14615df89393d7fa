# Made from src/warren/sdk/_async/renders.py by `make sdk`: change that instead.
"""Renders: HTML with slides in, PowerPoint out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from warren.domain.errors import Overloaded, RenderFailed
from warren.sdk.address import encode
from warren.sdk.events import QUIET_S, EventParser
from warren.sdk.failures import ServiceUnreachable, build_stream_error
from warren.sdk.io_sync import in_thread, sleep
from warren.sdk.options import assets_of
from warren.sdk.request import api
from warren.sdk.values import build
from warren.sdk.values_renders import Rendered, RenderInfo, RenderStep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warren.sdk._sync.connection import Connection
    from warren.sdk.content import Uploadable


class Renders:
    """Renders presentations, and manages renders in the background."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(
        self,
        html: str,
        *,
        assets: Mapping[str, Uploadable] | None = None,
        editable: bool | None = None,
        name: str = "presentation",
        progress: Callable[[RenderStep], object] | None = None,
    ) -> Rendered:
        """Make a presentation of a page, in which each element of the class `slide` is a slide. Raises RenderFailed.

        The page finds `assets` under `assets/`. With `editable` it is text, shapes, tables and pictures, without it one
        picture a slide; when not given, as the operator chose. It raises other Errors too.
        """
        render = self.start(html, assets=assets, editable=editable, name=name)
        try:
            info = self.wait(render.id, progress=progress)
            if info.status == "failed":
                raise _failure(info)
            return Rendered(archive=self.result(render.id), info=info)
        finally:
            self.delete(render.id)

    def start(
        self,
        html: str,
        *,
        assets: Mapping[str, Uploadable] | None = None,
        editable: bool | None = None,
        name: str = "presentation",
    ) -> RenderInfo:
        """Start a render in the background. Raises Error."""
        files = in_thread(assets_of, assets)
        body = {"html": html, "assets": files, "editable": editable, "name": name, "background": True}
        return self._connection.ask_for(RenderInfo, api("POST", "renders", json=body))

    def get(self, render_id: str) -> RenderInfo:
        """Find one. Raises NotFound and other Errors."""
        return self._connection.ask_for(RenderInfo, api("GET", "renders", encode(render_id)))

    def list(self) -> tuple[RenderInfo, ...]:
        """List yours, newest first. Raises Error."""
        return self._connection.ask_all(RenderInfo, api("GET", "renders"))

    def wait(self, render_id: str, *, progress: Callable[[RenderStep], object] | None = None) -> RenderInfo:
        """Wait until one is done or has failed, and call `progress` meanwhile. Raises NotFound and other Errors.

        A broken connection is resumed; `progress` may then get the same step again.
        """
        retries, failures = self._connection.retries, 0
        while True:
            try:
                return self._follow(render_id, progress)
            except (ServiceUnreachable, Overloaded):
                failures += 1
                if failures > retries.most:
                    raise
                sleep(retries.back_off(failures))

    def _follow(self, render_id: str, progress: Callable[[RenderStep], object] | None) -> RenderInfo:
        request = api("GET", "renders", encode(render_id), "events", read_timeout_s=QUIET_S)
        parser = EventParser()
        with self._connection.open(request) as answer:
            for piece in answer.iter_bytes():
                for event in parser.feed(piece):
                    if event.name == "error":
                        raise build_stream_error(json.loads(event.data))
                    if event.name == "progress" and progress is not None:
                        progress(build(RenderStep, json.loads(event.data)))
        info = self.get(render_id)
        if info.finished_at is None:
            raise ServiceUnreachable("the stream of events ended before the render did: wait for it again")
        return info

    def result(self, render_id: str) -> bytes:
        """Read the archive that one made. Raises Conflict while it is not done, RenderFailed and other Errors."""
        return (self._connection.ask(api("GET", "renders", encode(render_id), "result"))).content

    def delete(self, render_id: str) -> None:
        """End one that is not done, and delete what it made. Raises Error."""
        self._connection.ask(api("DELETE", "renders", encode(render_id)))


def _failure(info: RenderInfo) -> RenderFailed:
    failure = RenderFailed(info.error or "rendering failed", reason=info.reason or "failed")
    for warning in info.warnings:
        # Often the cause: a page whose script is missing draws no slides.
        failure.add_note(warning)
    return failure
