"""Native API, schemas: renders of slides."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from warren.domain.records import RenderStatus
from warren.gateway.api.bodies import matching
from warren.gateway.dialects.native.answers import OptionalTime, Shown, Time
from warren.gateway.dialects.native.schemas import Base64, Body
from warren.gateway.dialects.native.schemas_answers import OwnerShown

RENDER_ID = re.compile(r"rnd_[a-z0-9]{8,40}")
DeckName = Annotated[
    str, matching(r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$", "have 1 to 100 letters, digits, dots, dashes, underscores")
]
_PART = "[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}"
AssetName = Annotated[
    str,
    matching(
        f"^{_PART}(/{_PART}){{0,7}}$",
        "have 1 to 128 letters, digits, dots, dashes, underscores, and before them up to 7 folders of such names",
    ),
]


class Asset(Body):
    """A file that the page finds under `assets/`. Exactly one of `text` and `base64`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["base64"]}]})

    name: AssetName = Field(description="Its name under `assets/`, as `logo.png` or `img/logo.png`.")
    text: str = Field(default="", description="Its content, as text.")
    base64: Base64 = Field(default="", description="Its content, as base64.")


class CreateRender(Body):
    """A deck to make a presentation of."""

    html: str = Field(min_length=1, description="A page; each element of the class `slide` becomes a slide.")
    assets: list[Asset] = Field(default_factory=list, max_length=1000, description="What the page uses.")
    editable: bool | None = Field(
        default=None,
        description="True: text, shapes, tables and pictures (`v2`); false: one picture a slide (`v1`); when not "
        "given, as the operator chose.",
    )
    name: DeckName = Field(default="presentation", description="Of the presentation, without its ending.")
    background: bool = Field(default=False, description="Answer at once with a record of it, and go on without you.")


class DegradedShown(Shown):
    """A slide that is a picture though it was meant to be editable."""

    slide: int = Field(description="Its number, from 1.")
    why: str


class MissingShown(Shown):
    """What a page asked for and did not get."""

    url: str = Field(description="Its address: on the web, or as the page names its own files.")
    count: int = Field(description="How often it asked.")


class RenderShown(Shown):
    """A render in the background."""

    id: str = Field(pattern=r"^rnd_[a-z0-9]{8,40}$")
    owner: OwnerShown
    status: RenderStatus
    version: Literal["v1", "v2"]
    name: str
    slides: int = Field(description="How many it has; 0 while it is not done.")
    degraded: list[DegradedShown]
    missing: list[MissingShown] = Field(description="The first 20 addresses that the page asked for in vain.")
    script_errors: list[str] = Field(description="The first 10 uncaught exceptions of its scripts.")
    reason: str | None = Field(description="Why it failed, in a word.")
    error: str | None = Field(description="Why it failed, in a sentence.")
    created_at: Time
    finished_at: OptionalTime
    expires_at: Time = Field(description="When it is forgotten, and what it made with it.")


class RendersShown(Shown):
    """All of yours, newest first."""

    items: list[RenderShown]
