"""Tools for files of the workspace: read, write, edit, list."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import posixpath
from typing import TYPE_CHECKING, Any, Literal

from mcp_types import ImageContent
from pydantic import BaseModel, Field

from warren.domain.errors import NotFound
from warren.mcp_server.answers import IMAGES, MAX_IMAGE_BYTES, Failed, answer
from warren.mcp_server.tool import Arguments, SessionId, Tool

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from warren.core.agent.client import AgentClient
    from warren.core.agent.editor import Replaced
    from warren.mcp_server.use import CurrentSandbox, Use

_READ_BYTES = 8 << 20
_LISTED = 1000
_PATH = Field(min_length=1, max_length=4096, description="In the workspace: relative, or below /workspace.")


class ReadFile(Arguments):
    """What read_file takes."""

    path: str = _PATH
    line: int = Field(default=1, ge=1, description="The first line to read.")
    lines: int = Field(default=2000, ge=1, le=100_000, description="How many lines to read.")
    session_id: SessionId = None


class WriteFile(Arguments):
    """What write_file takes."""

    path: str = _PATH
    content: str = Field(description="All of the file.")
    encoding: Literal["utf-8", "base64"] = Field(default="utf-8", description="base64 for what is not text.")
    append: bool = Field(default=False, description="Add to the end instead of replacing the file.")
    session_id: SessionId = None


class EditFile(Arguments):
    """What edit_file takes."""

    path: str = _PATH
    old: str = Field(min_length=1, description="Text that is in the file exactly once; take some lines around it.")
    new: str = Field(description="What to put in its place.")
    session_id: SessionId = None


class ListFiles(Arguments):
    """What list_files takes."""

    path: str = Field(default=".", max_length=4096, description="A folder of the workspace.")
    recursive: bool = Field(default=False, description="With everything below it.")
    session_id: SessionId = None


class Read(BaseModel):
    """A part of a file."""

    path: str
    size: int
    text: str | None = Field(description="None for what is not text.")
    first_line: int = 1
    lines: int = Field(default=0, description="Of the whole file.")
    is_all: bool = True


class Written(BaseModel):
    """A file that was written or edited."""

    path: str
    size: int | None = None
    line: int | None = Field(default=None, description="Where it was edited.")


class Listed(BaseModel):
    """A file or folder."""

    path: str
    type: str
    size: int


class Listing(BaseModel):
    """What a folder holds."""

    files: list[Listed]
    is_all: bool


async def read_file(use: Use, asked: ReadFile) -> CallToolResult:
    """Read text by lines; a picture as a picture."""
    sandbox = await use.find(asked.session_id)
    try:
        async with use.service.files.read(use.caller, sandbox.id, asked.path, 0, _READ_BYTES) as content:
            entry = content.entry
            data = b"".join([piece async for piece in content])
    except NotFound as error:
        raise Failed(f"{error}: list_files shows what is there.") from None
    facts = {"path": asked.path, "size": entry.size}
    kind = guess_type(asked.path)
    if kind in IMAGES and len(data) == entry.size and len(data) * 4 // 3 <= MAX_IMAGE_BYTES:
        picture = ImageContent(data=base64.b64encode(data).decode(), mime_type=kind)
        return answer(f"{asked.path}, a picture of {entry.size} bytes", _read(facts | {"text": None}), [picture])
    if b"\0" in data:
        text = (
            f"{asked.path} is not text: {entry.size} bytes of {kind or 'unknown kind'}. Use run_python to look into it."
        )
        return answer(text, _read(facts | {"text": None, "is_all": False}))
    return _show_lines(use, asked, data, facts)


def _show_lines(use: Use, asked: ReadFile, data: bytes, facts: dict[str, Any]) -> CallToolResult:
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    most, first = use.settings.mcp.output_chars, asked.line - 1
    chosen: list[str] = []
    size = 0
    for line in lines[first : first + asked.lines]:
        if size + len(line) > most and chosen:
            break
        chosen.append(line[:most])
        size += len(line)
    is_all = first == 0 and len(chosen) == len(lines) and len(data) == facts["size"]
    text = "".join(chosen)
    if first >= len(lines) > 0:
        raise Failed(f"{asked.path} has only {len(lines)} lines: ask for a line up to that.")
    part = f"[lines {asked.line} to {first + len(chosen)} of {len(lines)}; read on with line={first + len(chosen) + 1}]"
    shown = text or "(the file is empty)" if is_all else f"{text.rstrip()}\n{part}"
    return answer(shown, _read(facts | {"text": text, "first_line": asked.line, "lines": len(lines), "is_all": is_all}))


def _read(data: dict[str, Any]) -> dict[str, Any]:
    return Read.model_validate(data).model_dump()


async def write_file(use: Use, asked: WriteFile) -> CallToolResult:
    """Write a file: whole, or not at all."""
    if asked.encoding == "base64":
        try:
            data = base64.b64decode(asked.content, validate=True)
        except (binascii.Error, ValueError):
            raise Failed("The content is not base64: encode it, or leave `encoding` out for text.") from None
    else:
        data = asked.content.encode("utf-8", "surrogatepass")

    async def work(place: CurrentSandbox) -> CallToolResult:
        entry = await use.service.files.write(
            use.caller, place.id, asked.path, data, create="append" if asked.append else "replace"
        )
        return answer(
            f"{asked.path} has {entry.size} bytes now.", {"path": asked.path, "size": entry.size, "line": None}
        )

    return await use.within(asked.session_id, work)


async def edit_file(use: Use, asked: EditFile) -> CallToolResult:
    """Replace a text that is in a file once."""
    sandbox = await use.find(asked.session_id)

    async def replace(agent: AgentClient, path: str) -> Replaced:
        old, new = (text.encode("utf-8", "surrogatepass") for text in (asked.old, asked.new))
        return await agent.replace_text(path, old, new)

    try:
        done = await use.service.files.edit(use.caller, sandbox.id, asked.path, "str_replace", replace)
    except NotFound as error:
        raise Failed(f"{error}: write_file makes a new file.") from None
    if done.matches == 0:
        raise Failed(f"`old` is not in {asked.path}: read_file shows what is there, to the last space.")
    if done.matches > 1:
        raise Failed(
            f"`old` is in {asked.path} {done.matches} times: take more of what is around it, so that it is once."
        )
    return answer(
        f"{asked.path} was edited at line {done.line}.", {"path": asked.path, "size": None, "line": done.line}
    )


async def list_files(use: Use, asked: ListFiles) -> CallToolResult:
    """List a folder."""
    sandbox = await use.find(asked.session_id)
    entries, is_all = await use.service.files.list(
        use.caller, sandbox.id, asked.path, recursive=asked.recursive, limit=_LISTED, hidden=False
    )
    lines = [f"{each.path}/" if each.type == "directory" else f"{each.path}  {each.size}" for each in entries]
    if not is_all:
        lines.append(f"[the first {len(entries)}; name a folder to see more]")
    files = [{"path": each.path, "type": each.type, "size": each.size} for each in entries]
    return answer("\n".join(lines) or "(nothing there)", {"files": files, "is_all": is_all})


def guess_type(path: str) -> str | None:
    """Guess what a file is from the ending of its name."""
    return mimetypes.guess_type(f"file{posixpath.splitext(path)[1]}")[0]


TOOLS = (
    Tool(
        name="read_file",
        title="Read a file",
        description="Read a text file of the workspace, by lines; a picture comes back as an image.",
        arguments=ReadFile,
        answer=Read,
        run=read_file,
        reads_only=True,
    ),
    Tool(
        name="write_file",
        title="Write a file",
        description="Write a file of the workspace, folders above it included. Replaces what was there.",
        arguments=WriteFile,
        answer=Written,
        run=write_file,
        destroys=True,
        repeats=True,
    ),
    Tool(
        name="edit_file",
        title="Edit a file",
        description="Replace a piece of a text file; the piece must be in the file exactly once.",
        arguments=EditFile,
        answer=Written,
        run=edit_file,
        destroys=True,
    ),
    Tool(
        name="list_files",
        title="List files",
        description="List a folder of the workspace.",
        arguments=ListFiles,
        answer=Listing,
        run=list_files,
        reads_only=True,
    ),
)
