"""A tool as a value: name, arguments, answer, handler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from mcp_types import Tool as Listed
from mcp_types import ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp_types import CallToolResult

    from warren.mcp_server.use import Use


class Arguments(BaseModel):
    """The arguments of a tool. Unknown ones are refused, so that a model notices a misspelled one."""

    model_config = ConfigDict(extra="forbid")


SessionId = Annotated[
    str | None,
    Field(
        max_length=1024,
        description="Name of another sandbox to use, made when it is first named. Leave it out for the usual one.",
    ),
]
"""The argument of every tool that works in a sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool, as a value."""

    name: str
    title: str
    description: str
    arguments: type[BaseModel]
    answer: type[BaseModel]
    run: Callable[[Use, Any], Awaitable[CallToolResult]]
    reads_only: bool = False
    destroys: bool = False
    repeats: bool = False
    """Whether a second call changes nothing more."""
    goes_out: bool = False
    """Whether it reaches something outside of the sandbox."""
    is_original: bool = False
    """Whether it is onit-sandbox's, with its shape of errors."""

    def render(self) -> Listed:
        """Build its entry of the list of tools."""
        return Listed(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=build_schema(self.arguments),
            output_schema=build_schema(self.answer),
            annotations=ToolAnnotations(
                title=self.title,
                read_only_hint=self.reads_only,
                destructive_hint=self.destroys and not self.reads_only,
                idempotent_hint=self.repeats or self.reads_only,
                open_world_hint=self.goes_out,
            ),
        )


def build_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Write a model as JSON Schema, without references: some clients resolve none."""
    schema = model.model_json_schema()
    known = schema.pop("$defs", {})
    return dict(_inline(schema, known))


def _inline(value: Any, known: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_inline(each, known) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _inline(known[value["$ref"].rpartition("/")[2]], known)
    # A docstring is for readers of the code, not for models.
    return {
        name: _inline(each, known)
        for name, each in value.items()
        if not (name == "description" and "properties" in value)
    }
