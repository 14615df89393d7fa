"""The inner shapes of Anthropic's own blocks, for sessions that ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.gateway.dialects.otari.translate import cut, produced

if TYPE_CHECKING:
    from warren.gateway.dialects.otari.editor import Edited
    from warren.gateway.dialects.otari.translate import Ran

_EDITOR = "text_editor_code_execution"


def render_program(ran: Ran, tool: str) -> dict[str, Any]:
    """Build the inner block of `code_execution` or `bash_code_execution`."""
    if ran.timed_out:
        return {"type": f"{tool}_tool_result_error", "error_code": "execution_time_exceeded"}
    return {
        "type": f"{tool}_result",
        "stdout": ran.stdout,
        "stderr": ran.stderr,
        "return_code": ran.return_code,
        "content": [{"type": f"{tool}_output", "file_id": each.path} for each in produced(ran)],
        **cut(ran),
    }


def render_edit(edited: Edited) -> dict[str, Any]:
    """Build the inner block of `text_editor_code_execution`."""
    if edited.failure is not None:
        code = "file_not_found" if edited.is_missing else "invalid_tool_input"
        return {"type": f"{_EDITOR}_tool_result_error", "error_code": code, "error_message": edited.failure}
    if edited.command == "view":
        return {
            "type": f"{_EDITOR}_view_result",
            "content": edited.text,
            "file_type": "text",
            "num_lines": edited.shown,
            "start_line": edited.line,
            "total_lines": edited.lines,
        }
    if edited.command == "create":
        return {"type": f"{_EDITOR}_create_result", "is_file_update": edited.is_update}
    old, new = edited.before.splitlines(), edited.after.splitlines()
    return {
        "type": f"{_EDITOR}_str_replace_result",
        "lines": [*(f"-{line}" for line in old), *(f"+{line}" for line in new)],
        "old_start": edited.line,
        "old_lines": len(old),
        "new_start": edited.line,
        "new_lines": len(new),
    }
