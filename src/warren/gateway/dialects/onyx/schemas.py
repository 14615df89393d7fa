"""The words of Onyx's code interpreter. Numbers and texts are strict: `"5"` is no number there."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, StrictInt, StrictStr


class FileRef(BaseModel):
    """A stored file, and where a program finds it."""

    path: StrictStr = Field(description="Relative to the workspace.")
    file_id: StrictStr


class Execute(BaseModel):
    """A Python program."""

    code: StrictStr
    stdin: StrictStr | None = None
    timeout_ms: StrictInt = Field(default=2000, ge=1)
    last_line_interactive: bool = Field(default=True, description="Print the value of the last expression.")
    files: list[FileRef] = Field(default=[], max_length=1000)


class CreateSession(BaseModel):
    """A session, for so long and with these files."""

    ttl_seconds: StrictInt = Field(default=900, ge=1, le=86_400)
    files: list[FileRef] = Field(default=[], max_length=1000)
    network_enabled: bool | None = Field(
        default=None, description="Reach what the operator lets sessions reach; where that is nothing, true is refused."
    )
    install_venv: bool = Field(default=True, description="Taken and not used: every session has its image's packages.")


class KeepAlive(BaseModel):
    """How long a session should live from now on."""

    ttl_seconds: StrictInt = Field(default=900, ge=1, le=86_400)


class Bash(BaseModel):
    """A command for bash."""

    cmd: StrictStr
    timeout_ms: StrictInt = Field(default=30_000, ge=1)


class WriteFile(BaseModel):
    """Where a file goes in a session."""

    path: str | None = None


class ProducedFile(BaseModel):
    """A file that a program made or changed; it is stored, and can be fetched by its id."""

    path: str
    kind: Literal["file"]
    file_id: str


class Ran(BaseModel):
    """How a command ended. After a timeout there is no exit code."""

    stdout: str
    stderr: str
    exit_code: int | None
    timed_out: bool
    duration_ms: int


class Executed(Ran):
    """How a program ended, and what it left."""

    files: list[ProducedFile]


class Uploaded(BaseModel):
    """A stored file."""

    file_id: str
    filename: str
    size_bytes: int


class StoredFile(Uploaded):
    """A stored file in a list."""

    upload_time: float


class StoredFiles(BaseModel):
    """The caller's stored files."""

    files: list[StoredFile]


class Session(BaseModel):
    """A session, and until when it lives."""

    session_id: str
    expires_at: float


class SessionFile(BaseModel):
    """Something in the workspace of a session."""

    path: str
    kind: Literal["file", "directory"]


class SessionFiles(BaseModel):
    """What is in the workspace of a session."""

    files: list[SessionFile]
    note: str | None = Field(default=None, description="Not in the original, and only where the list is cut.")
