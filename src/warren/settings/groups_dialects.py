"""The settings of the dialects: which are served, to whom, and what each original let its operators choose."""

from __future__ import annotations

from pydantic import Field

from warren.domain import MIB
from warren.settings.kinds import Group, Names, Size


class DialectSettings(Group):
    """What every dialect has."""

    enabled: bool = Field(default=True, description="Serve this dialect.")
    open: bool = Field(
        default=False,
        description="Ask its clients for no key, on a loopback address only: all of them are one principal.",
    )


class OtariSettings(DialectSettings):
    """Sessions with a Python that remembers, and Anthropic-shaped results."""

    idle_timeout_s: int = Field(
        default=900, ge=1, le=366 * 86_400, description="Seconds without use after which a session is gone."
    )
    max_lifetime_s: int = Field(
        default=7200,
        ge=1,
        le=366 * 86_400,
        description="Seconds after which a session is gone; none may have more.",
    )
    memory_bytes: Size = Field(
        default=1536 * MIB,
        ge=0,
        description="Memory of a session, within what its tenant may have; 0 is as for every other sandbox.",
    )
    output_bytes: Size = Field(
        default=MIB, ge=1024, le=3 * MIB // 2, description="Answered of stdout and of stderr, each: the beginning."
    )
    upload_bytes: Size = Field(default=100 * MIB, ge=1, description="Largest file of an upload.")
    callback_hosts: Names = Field(
        default=(),
        description="Hosts, addresses and networks besides the public ones that tools of clients may be called at.",
    )


class OnyxSettings(DialectSettings):
    """Programs with files, one sandbox each, and sessions of bash."""


class ChatuiSettings(DialectSettings):
    """Containers, with what a program leaves in `/tmp/output`."""


class DialectsSettings(Group):
    """The APIs of other products that their clients find here."""

    otari: OtariSettings = Field(default=OtariSettings(), description="otari's sessions, under `/sessions`.")
    onyx: OnyxSettings = Field(default=OnyxSettings(), description="Onyx's code interpreter, under `/v1`.")
    chatui: ChatuiSettings = Field(default=ChatuiSettings(), description="ChatUI's gateway: `/containers`, `/execute`.")
