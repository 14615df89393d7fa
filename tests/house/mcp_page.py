"""Writes docs/reference/mcp.md from the tools themselves: `make docs`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from warren.mcp_server.resources import LISTED, MAX_BYTES
from warren.mcp_server.server import TOOLS

if TYPE_CHECKING:
    from mcp_types import Tool

HEAD = f"""# MCP

How to set it up is in [tools for a model](../howto/mcp.md). This page lists what a client finds.

| transport | where | revisions of the protocol |
|---|---|---|
| standard input and output | `warren mcp` | 2026-07-28, and those with a handshake, back to 2024-11-05 |
| streamable HTTP | `/mcp` of the service | the same; the older ones with sessions (`Mcp-Session-Id`) |
| server-sent events | `GET /sse`, `POST /messages/` | the older ones; `mcp.sse` switches it off |

Over HTTP a client needs a key, as `Authorization: Bearer`, as `X-API-Key` or in the address (`/k/<key>/mcp`): the
scope `read` for lists and files, `run` for what runs or changes something. A web page's `Origin` must be the
service's own or among `serve.cors_origins`.

## Whose sandbox

A tool works in a sandbox, which is made when it is first needed. Which one, the first of these says that applies:

1. `session_id` of the call: a name of your choice, of the principal's own names.
2. The header `Warren-Session`: a name, for all calls of a client. With `Warren-Ephemeral: true` it is deleted when
   it has been idle, instead of stopped with its files kept.
3. Over streamable HTTP with a session: that session's own, which is gone when the client ends the session or it is
   idle (`mcp.sandbox_per_session`).
4. The principal's one sandbox for MCP.

In the native API they have the session keys `mcp/<name>` and the label `dialect=mcp`. They reach what `mcp.egress`
says, at most what their tenant may: `packages` unless set. An idle one is stopped after `mcp.idle_timeout_s`; the
next call resumes it, with its files and without its variables, and says so.

## Answers

Each tool answers text for the model and, as `structuredContent`, the same as data, in the shape of its
`outputSchema`; pictures follow as images. An output longer than `mcp.output_chars` keeps its beginning and its end.
What goes wrong is an answer with `isError` that says what to do next. A client that sends a `progressToken` is told
every second that a call goes on, with the last line that was written. A call that is cancelled (or, in the current
revision over HTTP, whose connection is closed) is ended inside the sandbox.

## Resources

Files are resources, `warren://<sandbox id>/<path>`: the list has up to {LISTED} files of the sandbox that calls
without a name use, and any file of any of the principal's sandboxes can be read by its address, up to {
    MAX_BYTES >> 20
} MiB.

## Tools

`mcp.tools` chooses among them. `install_packages`, `run_code` and `sandbox_status` are those of onit-sandbox, with
its arguments and its results as JSON in a text; [how to move](../howto/migrate-from-onit.md).

"""


def render() -> str:
    """Return the page."""
    return HEAD + "\n".join(_section(tool.render()) for tool in TOOLS.values())


def _section(tool: Tool) -> str:
    hints = tool.annotations
    assert hints is not None
    words = {"reads only": hints.read_only_hint, "may destroy": hints.destructive_hint}
    words |= {"twice is as once": hints.idempotent_hint, "reaches outside": hints.open_world_hint}
    told = ", ".join(word for word, is_so in words.items() if is_so)
    rows = "".join(_row(name, schema, tool.input_schema) for name, schema in tool.input_schema["properties"].items())
    answers = ", ".join(f"`{name}`" for name in (tool.output_schema or {}).get("properties", {}))
    return (
        f"### {tool.name}\n\n{tool.title}{f' ({told})' if told else ''}. {tool.description}\n\n"
        f"| argument | type | default | |\n|---|---|---|---|\n{rows}\nAnswers: {answers}.\n"
    )


def _row(name: str, schema: dict[str, Any], whole: dict[str, Any]) -> str:
    kinds = [str(each.get("type")) for each in schema.get("anyOf", [schema])]
    choices = schema.get("enum")
    kind = " or ".join(f"`{each}`" for each in choices) if choices else " or ".join(kinds)
    default = "needed" if name in whole.get("required", ()) else f"`{schema.get('default')}`"
    return f"| `{name}` | {kind} | {default} | {schema.get('description', '')} |\n"


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as page:
        page.write(render())
