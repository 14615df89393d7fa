"""Native API, schemas: files and folders."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from warren.gateway.api.bodies import matching
from warren.gateway.dialects.native.answers import Shown, Time
from warren.gateway.dialects.native.schemas import Body, Path, Query, Whole

MAX_LISTED = 100_000
Mode = Annotated[str, matching(r"^0?[0-7]{3}$", "be three octal digits, such as 644")]
Pattern = Annotated[str, matching(r"^[^\x00]{1,4096}$", "have 1 to 4096 characters, and no NUL")]
Format = Literal["tar", "tar.gz", "zip"]


class ListFiles(Query):
    """Which files to list."""

    path: Path = Field(default=".", description="A folder: relative to the workspace, or absolute below it.")
    recursive: bool = Field(default=False, description="Everything below it, too.")
    hidden: bool = Field(default=True, description="Also names that begin with a dot, and files below `node_modules`.")
    limit: int = Field(default=10_000, ge=1, le=MAX_LISTED, description="How many at most.")


class WriteFile(Query):
    """How to write a file."""

    parents: bool = Field(default=True, description="Make the folders above it where they are missing.")
    mode: Mode = Field(default="644", description="Its permissions, in octal.")


class DeleteFile(Query):
    """How to delete."""

    recursive: bool = Field(default=False, description="A folder with everything in it.")


class UploadFiles(WriteFile):
    """Where to put the files of a form."""

    path: Path = Field(default=".", description="The folder that their names are relative to.")


class Archive(Query):
    """A folder as an archive."""

    path: Path = Field(default=".", description="The folder: relative to the workspace, or absolute below it.")
    format: Format = Field(default="tar", description="Of the archive.")


class MakeFolder(Body):
    """A folder to make."""

    path: Path = Field(description="Relative to the workspace, or absolute below it.")
    parents: bool = Field(default=True, description="Make those above it, and be content if it is there.")


class Move(Body):
    """A file or folder to give another name."""

    path: Path = Field(description="What to move: relative to the workspace, or absolute below it.")
    to: Path = Field(description="Its new path, name and all.")
    overwrite: bool = Field(default=False, description="Replace a file that has that name.")
    parents: bool = Field(default=False, description="Make the folders above the new path where they are missing.")


class Search(Body):
    """What to look for: names, lines, or lines in files of some names."""

    model_config = ConfigDict(json_schema_extra={"not": {"required": ["text", "regex"]}})

    path: Path = Field(default=".", description="The folder to look in, and below.")
    name: Pattern = Field(
        default="", description="A glob. With a slash it is for the whole path, without for the last name."
    )
    text: Pattern = Field(default="", description="Lines that contain this.")
    regex: Pattern = Field(default="", description="Lines in which this regular expression is found.")
    limit: Whole = Field(default=1000, ge=1, le=MAX_LISTED, description="How many matches at most.")

    @model_validator(mode="after")
    def _check_one_question(self) -> Search:
        if {"text", "regex"} <= self.model_fields_set:
            raise ValueError("give text or regex, not both")
        return self


class EntryShown(Shown):
    """A file, folder or link of the workspace."""

    name: str
    type: Literal["file", "directory", "link", "other"]
    size: int
    path: str = Field(description="Relative to the workspace.")
    modified_at: Time
    mode: str = Field(description="Permissions, in octal.")
    target: str | None = Field(description="Where a link leads; null for what is none.")
    encoded_path: str = Field(
        description="The path as it stands in an address, exact also where the name is no UTF-8 and `path` is not."
    )


class MatchShown(Shown):
    """A file, or a line of one."""

    path: str
    line: int | None = Field(description="Its number, from 1; null when only names were looked for.")
    text: str | None = Field(description="The line, or its first 500 characters.")


class Found(Shown):
    """What a search found."""

    items: list[MatchShown]
    complete: bool = Field(description="False when there may be more: the limit or 20 seconds were reached.")


class Unpacked(Shown):
    """What came out of an archive."""

    entries: int
