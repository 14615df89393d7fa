"""Native API, schemas: packages."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from warren.gateway.dialects.native.answers import Shown
from warren.gateway.dialects.native.schemas import Body

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
