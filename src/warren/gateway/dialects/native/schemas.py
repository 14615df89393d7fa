"""What the models of the native API share: their bases, and fields that several have.

The models themselves are in `schemas_…`, by subject. Unknown fields are refused; every number and string is bounded.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from warren.gateway.api.bodies import matching

EXECUTION_ID = re.compile(r"exe_[a-z0-9]{8,40}")
KERNEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
NO_NUL = "hold no NUL"
NO_OTHERS: dict[str, JsonValue] = {"additionalProperties": False}

_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def as_whole(value: object) -> object:
    """Take 3.0 for 3, as JSON does."""
    return int(value) if type(value) is float and value.is_integer() else value


Text = Annotated[str, matching(r"^[^\x00]*$", NO_NUL)]
"""Text without NUL, which neither a command line nor Python source can hold."""
Base64 = Annotated[str, matching(_BASE64, "be base64, with its padding")]
Whole = Annotated[int, BeforeValidator(as_whole)]
Port = Annotated[int, Field(ge=1, le=65_535), BeforeValidator(as_whole)]
EnvName = Annotated[
    str,
    matching(
        r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", "have 1 to 128 letters, digits and underscores, and begin with no digit"
    ),
]
EnvValue = Annotated[str, matching(r"^[^\x00]*$", NO_NUL, max_length=32_768)]
Env = Annotated[dict[EnvName, EnvValue], Field(max_length=256, json_schema_extra=dict(NO_OTHERS))]
SessionKey = Annotated[str, matching(r"^[^\x00]{1,256}$", "have 1 to 256 characters, and no NUL")]
ImageName = Annotated[
    str,
    matching(
        r"^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,199}$", "be the name of an image: letters, digits and . _ / : @ -, no spaces"
    ),
]
KernelName = Annotated[
    str, matching(f"^{KERNEL_NAME.pattern}$", "have 1 to 64 letters, digits, dots, dashes and underscores")
]
Path = Annotated[str, matching(r"^[^\x00]{1,4096}$", "have 1 to 4096 characters, and no NUL")]
SkillIds = Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=100)]


class Body(BaseModel):
    """A JSON body: strict, so that the documentation says all that is taken."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Query(BaseModel):
    """The query of an address: all values are text there, so they are converted."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Paging(Query):
    """Which part of a list."""

    offset: int = Field(default=0, ge=0, le=1 << 31, description="How many to pass over.")
    limit: int = Field(default=50, ge=1, le=200, description="How many at most.")
