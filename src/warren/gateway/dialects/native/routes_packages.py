"""The native API: install packages."""

from __future__ import annotations

import codecs
import contextlib
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StringConstraints

from warren.core.packages.install import NewInstall
from warren.domain.records import Scope
from warren.gateway.api.operations import Answer, Routes, json_reply
from warren.gateway.api.streaming import EventStream, encode_event, finish_unless_left
from warren.gateway.dialects.native.answers import Shown
from warren.gateway.dialects.native.common import sandbox_id
from warren.gateway.dialects.native.schemas import Body

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import ASGIApp

    from warren.core.packages.install import Installed
    from warren.gateway.api.operations import Call

_EVENTS = (
    "`started` (`execution_id`, `sandbox_id`), `stdout` and `stderr` (`data`: what the installer says), `result` (as "
    "without streaming), which is the last, or `error` (a problem) when the stream cannot go on."
)

PackageName = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class InstallPackages(Body):
    """What to install."""

    packages: Annotated[list[PackageName], Field(min_length=1, max_length=100)] = Field(
        description="Names, with extras and versions if you like: `rich`, `httpx[http2]>=0.27`, `lodash@4.17.21`. No "
        "options, addresses or paths."
    )
    ecosystem: Literal["python", "npm"] = Field(default="python", description="Where they are from.")
    upgrade: bool = Field(default=False, description="Replace what is there by the newest that fits.")
    timeout_seconds: float | None = Field(
        default=None, ge=0.001, le=86_400, description="Ended after so long; unless given, as the operator chose."
    )
    stream: bool = Field(default=False, description="Answer with events, as `Accept: text/event-stream` does.")


class PackageShown(Shown):
    """A package that is there now."""

    name: str
    version: str


class InstalledShown(Shown):
    """What came of an installation."""

    ok: bool = Field(description="Whether everything is there.")
    packages: list[PackageShown] = Field(
        description="What was asked for and is there, and whatever came with it, as the installer reports it."
    )
    output: str = Field(description="What the installer said.")
    execution_id: str = Field(description="The execution that it was.")
    hint: str | None = Field(description="What to do, where there is something to do.")
    duration_ms: float
    timed_out: bool


routes = Routes("Packages")


@routes.add(
    "POST /sandboxes/{sandbox_id}/packages",
    Scope.RUN,
    description="From the indexes that the operator configured, through a cache that all sandboxes share, into the "
    "workspace, where they stay. The sandbox's egress must allow `packages`. What an installer cannot do is a "
    "result; a client that goes away ends it.",
    body=InstallPackages,
    example={"packages": ["rich==14.1.0", "httpx[http2]"]},
    answers=(
        Answer("What came of it.", InstalledShown),
        Answer(f"Server-sent events: {_EVENTS}", content_type="text/event-stream"),
    ),
    errors=(404, 409, 501, 502),
)
async def install_packages(call: Call) -> ASGIApp:
    """Install packages."""
    body, target = call.body(InstallPackages), sandbox_id(call)
    new = NewInstall(
        ecosystem=body.ecosystem, names=tuple(body.packages), upgrade=body.upgrade, timeout_s=body.timeout_seconds
    )
    if body.stream or "text/event-stream" in (call.header(b"accept") or "").lower():
        return await _stream(call, target, new)
    work = call.service.packages.install(call.caller, target, new)
    return json_reply(_render(await finish_unless_left(call.receive, work)))


async def _stream(call: Call, target: str, new: NewInstall) -> EventStream:
    held = contextlib.AsyncExitStack()
    installing = await held.enter_async_context(call.service.packages.begin(call.caller, target, new))
    events = await held.enter_async_context(contextlib.aclosing(installing.events()))

    async def write() -> AsyncGenerator[bytes, None]:
        make = codecs.getincrementaldecoder("utf-8")
        decoders = {"stdout": make("replace"), "stderr": make("replace")}
        yield encode_event("started", {"execution_id": installing.execution_id, "sandbox_id": target})
        async for event in events:
            if text := decoders[event.kind].decode(event.data):
                yield encode_event(event.kind, {"data": text})
        yield encode_event("result", _render(await installing.finish()))

    return EventStream(write(), held, heartbeat_s=call.settings.serve.heartbeat_s)


def _render(installed: Installed) -> dict[str, object]:
    packages = [{"name": name, "version": version} for name, version in installed.packages]
    return InstalledShown.render(installed, packages=packages)
