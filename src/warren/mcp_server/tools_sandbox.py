"""The tool that resets a sandbox: its variables only, or everything."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from warren.domain.errors import NotFound
from warren.mcp_server.answers import answer
from warren.mcp_server.tool import Arguments, SessionId, Tool

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from warren.mcp_server.use import Use

_KERNEL = "main"


class ResetSandbox(Arguments):
    """What reset_sandbox takes."""

    what: Literal["python", "everything"] = Field(
        default="python",
        description="python: only the variables of run_python. everything: files, packages and processes too.",
    )
    session_id: SessionId = None


class Reset(BaseModel):
    """What was reset."""

    gone: list[str]


async def reset_sandbox(use: Use, asked: ResetSandbox) -> CallToolResult:
    """Restart the kernel, or delete the sandbox."""
    if asked.what == "everything":
        with contextlib.suppress(NotFound):
            sandbox = await use.service.sandboxes.find(use.caller, use.key(asked.session_id))
            await use.service.sandboxes.delete(use.caller, sandbox.id)
        return answer(
            "The sandbox is gone; the next call makes a new one.", {"gone": ["variables", "files", "processes"]}
        )
    sandbox = await use.find(asked.session_id)
    with contextlib.suppress(NotFound):
        await use.service.kernels.restart(use.caller, sandbox.id, _KERNEL)
    return answer("Python begins anew: variables are gone, files are as they were.", {"gone": ["variables"]})


TOOLS = (
    Tool(
        name="reset_sandbox",
        title="Reset the sandbox",
        description="Start over: forget the variables of run_python, or with what='everything' delete the sandbox.",
        arguments=ResetSandbox,
        answer=Reset,
        run=reset_sandbox,
        destroys=True,
        repeats=True,
    ),
)
