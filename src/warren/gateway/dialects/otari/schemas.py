"""What otari's clients send and get, in its words. Unknown fields are passed over, numbers may come as text."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

MAX_CODE = 200_000
MAX_TIMEOUT_S = 120

Tool = Literal["code_execution", "bash_code_execution", "text_editor_code_execution"]
Format = Literal["otari", "anthropic"]


class CreateSession(BaseModel):
    """How long a session lives, and what its results look like."""

    idle_timeout_seconds: int | None = Field(default=None, ge=1, description="Seconds without use until it goes.")
    max_lifetime_seconds: int | None = Field(default=None, ge=1, description="Seconds until it goes, used or not.")
    result_format: Format = Field(
        default="otari",
        description="`anthropic` gives results the inner shapes of Anthropic's own blocks, each tool its own.",
    )
    image: Any = Field(default=None, description="A hint: an image that the operator allows. Others are ignored.")

    @model_validator(mode="before")
    @classmethod
    def _accept_null(cls, value: object) -> object:
        return {} if value is None else value


class Session(BaseModel):
    """A session."""

    session_id: str
    created_at: float
    last_activity_at: float
    idle_timeout_seconds: int | None
    max_lifetime_seconds: int | None


class Exec(BaseModel):
    """One use of a tool."""

    tool: Tool
    input: dict[str, Any] = Field(description="`code`, `command`, or what the editor shall do.")
    timeout_seconds: int = Field(default=30, ge=1, le=MAX_TIMEOUT_S)
    tool_use_id: str | None = Field(default=None, description="Made up where there is none.")


class CodeInput(BaseModel):
    """For `code_execution`."""

    code: str = Field(min_length=1, max_length=MAX_CODE)


class BashInput(BaseModel):
    """For `bash_code_execution`."""

    command: str = Field(min_length=1, max_length=MAX_CODE)


class EditorInput(BaseModel):
    """For `text_editor_code_execution`."""

    command: Literal["view", "create", "str_replace", "insert", "undo_edit"]
    path: str
    file_text: str | None = None
    old_str: str | None = None
    new_str: str | None = None
    insert_line: int | None = None
    view_range: list[int] | None = None


class ResultBlock(BaseModel):
    """The result as a model's tool result."""

    type: str
    tool_use_id: str
    content: dict[str, Any]


class ExecAnswer(BaseModel):
    """What a tool did. What follows `execution_time_ms` is ours: the original does not have it."""

    tool_use_id: str
    result_block: ResultBlock
    execution_time_ms: int
    execution_id: str | None = Field(description="Under which the native API knows it.")
    cause: str | None = Field(description="Why it ended.")
    state: str | None = Field(description="What became of the variables: `kept`, `rolled_back`, `lost` or `none`.")
    timed_out: bool
    truncated: bool
    hint: str | None = Field(description="What to do next.")
    files: list[dict[str, Any]] = Field(description="Files that were created, modified or deleted.")


class Uploaded(BaseModel):
    """A file that was written."""

    path: str
    size_bytes: int


class PathQuery(BaseModel):
    """Which file."""

    path: str = Field(description="Relative to the workspace, or absolute inside it.")


class ListQuery(BaseModel):
    """Which folder."""

    path: str = Field(default=".", description="A folder, or one file.")


class ListedFile(BaseModel):
    """A file of a folder."""

    path: str
    size_bytes: int
    mime_type: str | None
    modified_at: float


class Listed(BaseModel):
    """The files of a folder, but not those below it."""

    files: list[ListedFile]


class ToolSpec(BaseModel):
    """A tool that code may call."""

    name: str
    doc: str = ""


class Register(BaseModel):
    """Tools that the client offers to the code of a session."""

    callback_url: str
    token: str
    tools: Annotated[list[ToolSpec], Field(max_length=1000)] = []
    timeout_seconds: int = Field(default=300, ge=1, le=3600)


class Registered(BaseModel):
    """Where code finds them."""

    stub_path: str
    tool_count: int
