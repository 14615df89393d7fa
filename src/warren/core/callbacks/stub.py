"""The Python module by which programs call tools, and its search path. It holds no secret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from warren.domain.errors import SandboxLost
from warren.domain.values import Echo, ExecKind, ExecRequest, new_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.core.agent.client import AgentClient

MODULE = "_platform_tools.py"
_INSIDE_S = 30.0
# Outside the workspace, whose files are the client's. WHY a file `__pycache__`: Python then keeps no compiled copy,
# which it would take for the next version, if that has the same size and second.
_WRITE = f"""
folder="${{TMPDIR:-/tmp}}/.warren/lib"
mkdir -p "$folder" && touch "$folder/__pycache__" && cat > "$folder/.new" && mv "$folder/.new" "$folder/{MODULE}" &&
printf %s "$folder"
"""
_SOURCE = '''"""Tools of the platform, for code to call. Written by the service, again whenever they change."""

import json as _json


class ToolError(Exception):
    """A tool says that it failed, or could not be reached."""


def _build(port, timeout, error):
    import json
    import socket
    import uuid

    def ask(name, request):
        try:
            with socket.create_connection(("127.0.0.1", port), 10) as connection:
                connection.settimeout(timeout)
                connection.sendall(request.encode("utf-8", "surrogatepass") + b"\\n")
                reply = b"".join(iter(lambda: connection.recv(65536), b""))
        except ConnectionError as exc:
            raise error(f"tool {name!r} unreachable: {exc}") from None
        except OSError as exc:
            raise error(f"tool {name!r} transport error: {exc}") from None
        head, found, body = reply.partition(b"\\n")
        if not found:
            raise error(f"tool {name!r} unreachable: the service does not answer now")
        return json.loads(head), body

    def call(name, given):
        request = json.dumps({"call_id": uuid.uuid4().hex, "name": name, "input": given})
        head, body = ask(name, request)
        if "unreachable" in head:
            raise error(f"tool {name!r} unreachable: {head['unreachable']}")
        if not 200 <= head["status"] < 300:
            raise error(f"tool {name!r} failed: HTTP {head['status']}")
        try:
            reply = json.loads(body)
        except ValueError:
            raise error(f"tool {name!r} transport error: its answer is no JSON") from None
        if not isinstance(reply, dict):
            raise error(f"tool {name!r} transport error: its answer is no object")
        if reply.get("is_error"):
            raise error(reply.get("content"))
        return reply.get("content")

    def make(name, doc):
        def tool(**kwargs):
            return call(name, kwargs)

        tool.__name__ = tool.__qualname__ = name
        tool.__doc__ = doc or f"Programmatic tool {name}."
        return tool

    def find(name):
        """Find a tool that was registered after this module was imported."""
        head, _ = ask(name, json.dumps({"list": True}))
        tools = head.get("tools", {})
        if name not in tools:
            raise AttributeError(f"there is no tool {name!r}")
        return make(name, tools[name])

    return make, find


_make, _find = _build(@PORT@, @TIMEOUT@, ToolError)


def __getattr__(name, _find=_find):
    if name.startswith("__"):
        raise AttributeError(name)
    return _find(name)


_tools = _json.loads(@TOOLS@)
globals().update({name: _make(name, doc) for name, doc in _tools.items()})
'''


def render_stub(tools: Mapping[str, str], port: int, timeout_s: float) -> bytes:
    """Render the module."""
    # Longer than the service's own timeout: the service reports that a call took too long.
    values = {"@PORT@": str(port), "@TIMEOUT@": repr(timeout_s + 10), "@TOOLS@": ascii(json.dumps(dict(tools)))}
    source = _SOURCE
    for mark, value in values.items():
        source = source.replace(mark, value)
    return source.encode()


async def write_stub(agent: AgentClient, source: bytes) -> str:
    """Write the module, and return its folder as programs see it. Raises SandboxLost for an invalid answer."""
    done = await agent.run(_build_inside(ExecKind.SHELL, _WRITE), stdin=source)
    agent.ack_soon(done.id)
    folder = done.stdout.decode("utf-8", "replace")
    if done.exit_code != 0 or not folder.startswith("/") or "\n" in folder or ":" in folder:
        raise SandboxLost("the sandbox does not take the module of its tools: its temporary folder may be full")
    return folder


async def extend_path(agent: AgentClient, folder: str) -> None:
    """Add the module to the path of running kernels; later ones have it in their environment."""
    # A folder that was missing at its first search would never be searched again.
    sys, name = "__import__('sys')", json.dumps(folder)
    code = f"{sys}.path_importer_cache.pop({name}, None); {sys}.path.insert(0, {name})"
    for kernel in await agent.kernels():
        done = await agent.run(_build_inside(ExecKind.CELL, code, kernel.name))
        agent.ack_soon(done.id)


def _build_inside(kind: ExecKind, code: str, kernel: str = "main") -> ExecRequest:
    return ExecRequest(
        id=new_id("exe"),
        kind=kind,
        code=code,
        kernel=kernel,
        timeout_s=_INSIDE_S,
        echo=Echo.NONE,
        stream=False,
        scan_changes=False,
        output_bytes=8192,
    )
