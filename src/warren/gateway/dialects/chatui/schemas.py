"""What ChatUI's clients send and get, in its words. Unknown fields are passed over, numbers may come as text."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

MAX_CODE = 100_000
MAX_NAME = 128
MAX_PACKAGE = 64
MAX_TEX = 250_000
MAX_TEX_FILES = 20
MAX_DECK_FILE = 35_000_000
_FILE_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-\[\],<>=!~]*")


def _check_name(name: str) -> str:
    name = name.strip()
    if not name:
        raise ValueError("File name cannot be empty")
    if len(name) > MAX_NAME:
        raise ValueError(f"File name too long (max {MAX_NAME} chars)")
    if "\\" in name or name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise ValueError("File name contains invalid path segments")
    if any(part in {"", "."} for part in name.split("/")):
        raise ValueError("File name contains invalid components")
    return name


def _check_package(name: str) -> str:
    name = name.strip()
    if not name:
        raise ValueError("Package name cannot be empty")
    if len(name) > MAX_PACKAGE:
        raise ValueError(f"Package name too long (max {MAX_PACKAGE} chars)")
    if _PACKAGE.fullmatch(name) is None:
        raise ValueError("Package name contains invalid characters")
    return name


class CreateContainer(BaseModel):
    """What a container may do."""

    enable_network: bool = Field(default=False, description="Reach what the operator lets containers reach.")
    inject_sandbox_env: bool = Field(default=False, description="Put the operator's file of values into `~/.env`.")

    @model_validator(mode="before")
    @classmethod
    def _accept_null(cls, value: object) -> object:
        return {} if value is None else value


class Container(BaseModel):
    """A container."""

    container_id: str
    status: Literal["active"]
    uptime_seconds: float
    last_activity: float
    expires_at: float | None
    execution_count: int
    max_executions: int
    docker_daemon_id: str | None


class Removed(BaseModel):
    """That a container is gone."""

    status: Literal["success"]
    message: str


class InputFile(BaseModel):
    """A file that is in the home folder when the program starts."""

    name: Annotated[str, AfterValidator(_check_name)]
    content: str = Field(description="Base64.")


class Execute(BaseModel):
    """A program."""

    container_id: str
    language: Literal["python", "bash"] = "python"
    code: str = Field(min_length=1, max_length=MAX_CODE)
    timeout: int | None = Field(default=None, ge=1, description="Seconds; the operator decides how many at most.")
    enable_network: bool | None = Field(default=False, description="Passed over.")
    pip_packages: list[Annotated[str, AfterValidator(_check_package)]] | None = Field(
        default=None, description="Installed before it runs, where the operator allows that."
    )
    files: list[InputFile] | None = None


class OutputFile(BaseModel):
    """A file that the program left in `/tmp/output`."""

    name: str
    content: str | None = Field(description="Base64; null where `error` says why.")
    mime_type: str
    size: int
    error: str | None


class Executed(BaseModel):
    """What a program did."""

    execution_id: str
    stdout: str
    stderr: str
    error: str | None
    error_type: str | None
    files: list[OutputFile]
    execution_time: float = Field(description="Seconds.")
    install_time: float | None
    timed_out: bool


class About(BaseModel):
    """What this is."""

    service: str
    message: str
    version: str
    execute_endpoint: str
    render_endpoint: str
    latex_render_endpoint: str
    version_endpoint: str


class Version(BaseModel):
    """Which release of the original this speaks as, and what of it there is."""

    version: str
    tag: str
    api_contract_version: int
    beta: bool
    active_execution_version: str
    default_execution_version: str
    supported_execution_versions: list[str]
    available_execution_versions: list[str]
    active_rendering_version: str
    default_rendering_version: str
    supported_rendering_versions: list[str]
    available_rendering_versions: list[str]
    features: dict[str, bool]


class TexFile(BaseModel):
    """A file beside the document."""

    model_config = ConfigDict(extra="forbid")

    file_name: str = Field(min_length=1, max_length=180, pattern=r"^[A-Za-z0-9._-]+$")
    base64_content: str = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _accept_alias(cls, value: Any) -> Any:
        return _rename_base64(value)


class Tex(BaseModel):
    """A LaTeX document."""

    model_config = ConfigDict(extra="forbid")

    tex: str = Field(min_length=1, max_length=MAX_TEX)
    job_name: str = "document"
    input_files: list[TexFile] = Field(default=[], max_length=MAX_TEX_FILES)


class DeckFile(BaseModel):
    """A file that a page finds under `assets/`."""

    model_config = ConfigDict(extra="forbid")

    file_name: str = Field(min_length=1, max_length=128)
    base64_content: str = Field(min_length=1, max_length=MAX_DECK_FILE)

    @model_validator(mode="before")
    @classmethod
    def _accept_alias(cls, value: Any) -> Any:
        return _rename_base64(value)

    @field_validator("file_name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if "/" in name or "\\" in name:
            raise ValueError("file_name must not contain path separators")
        if not _FILE_NAME.fullmatch(name) or name in {".", ".."}:
            raise ValueError("file_name must be letters, digits, dots, dashes and underscores")
        return name


class Deck(BaseModel):
    """A page with slides."""

    model_config = ConfigDict(extra="forbid")

    html: str = Field(min_length=1)
    input_files: list[DeckFile] = []
    rendering_version: Literal["v1", "v2"] | None = Field(
        default=None, description="Not in the original: which renderer, where it is not the operator's choice."
    )

    @field_validator("input_files")
    @classmethod
    def _check_unique(cls, files: list[DeckFile]) -> list[DeckFile]:
        seen: set[str] = set()
        for each in files:
            if each.file_name in seen:
                raise ValueError(f"duplicate input file name: {each.file_name}")
            seen.add(each.file_name)
        return files


def _rename_base64(value: Any) -> Any:
    if isinstance(value, dict) and "base64" in value and "base64_content" not in value:
        return {("base64_content" if name == "base64" else name): each for name, each in value.items()}
    return value


class Counts(BaseModel):
    """How much was run."""

    model_config = ConfigDict(extra="allow")

    total_executions: int
    successful_executions: int
    failed_executions: int
    timed_out_executions: int
    active_executions: int
