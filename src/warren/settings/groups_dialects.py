"""The settings of the dialects: which are served, to whom, and what each original let its operators choose."""

from __future__ import annotations

from pydantic import Field

from warren.settings.kinds import Group


class DialectSettings(Group):
    """What every dialect has."""

    enabled: bool = Field(default=True, description="Serve this dialect.")
    open: bool = Field(
        default=False,
        description="Ask its clients for no key, on a loopback address only: all of them are one principal.",
    )


class OtariSettings(DialectSettings):
    """Sessions with a Python that remembers, and Anthropic-shaped results."""


class OnyxSettings(DialectSettings):
    """Programs with files, one sandbox each, and sessions of bash."""


class ChatuiSettings(DialectSettings):
    """Containers, with what a program leaves in `/tmp/output`."""


class DialectsSettings(Group):
    """The APIs of other products that their clients find here."""

    otari: OtariSettings = Field(default=OtariSettings(), description="otari's sessions, under `/sessions`.")
    onyx: OnyxSettings = Field(default=OnyxSettings(), description="Onyx's code interpreter, under `/v1`.")
    chatui: ChatuiSettings = Field(default=ChatuiSettings(), description="ChatUI's gateway: `/containers`, `/execute`.")
