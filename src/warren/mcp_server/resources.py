"""Files as resources: `warren://<sandbox>/<path>`, of the sandboxes that the caller owns."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    BlobResourceContents,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from warren.domain.errors import Error, NotFound
from warren.domain.lifecycle import Status
from warren.mcp_server.answers import explain, printable
from warren.mcp_server.tools_files import guess_type

if TYPE_CHECKING:
    from warren.mcp_server.use import Use

SCHEME = "warren://"
MAX_BYTES = 4 << 20
"""Of one resource: larger files are read in parts, with read_file."""
LISTED = 500
_URI = re.compile(r"warren://(sbx_[a-z0-9]{8,40})/(.+)", re.DOTALL)


async def list_resources(use: Use) -> ListResourcesResult:
    """List the files of the caller's default sandbox; none where it does not exist or is stopped."""
    try:
        sandbox = await use.service.sandboxes.find(use.caller, use.key(None))
        if sandbox.status is not Status.RUNNING:
            return ListResourcesResult(resources=[])
        entries, _ = await use.service.files.list(use.caller, sandbox.id, recursive=True, limit=LISTED, hidden=False)
    except NotFound:
        return ListResourcesResult(resources=[])
    except Error as error:
        raise _refused(error) from error
    files = [
        Resource(
            name=printable(each.path),
            uri=build_uri(sandbox.id, each.path),
            mime_type=guess_type(each.path),
            size=each.size,
        )
        for each in entries
        if each.type == "file"
    ]
    return ListResourcesResult(resources=files)


async def list_templates(_context: object, _params: object) -> ListResourceTemplatesResult:
    """Return the URI template of files."""
    template = ResourceTemplate(
        name="file",
        title="A file of a sandbox",
        uri_template=f"{SCHEME}{{sandbox}}/{{+path}}",
        description="A file of a sandbox of yours, by the sandbox's id and the file's path in its workspace.",
    )
    return ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(use: Use, uri: str) -> ReadResourceResult:
    """Read a file. Raises MCPError."""
    found = _URI.fullmatch(uri)
    if found is None:
        raise MCPError(INVALID_PARAMS, f"Resource not found: an address is {SCHEME}sbx_.../path", {"uri": uri[:1024]})
    sandbox_id, path = found[1], unquote(found[2], errors="surrogateescape")
    try:
        async with use.service.files.read(use.caller, sandbox_id, path, 0, MAX_BYTES) as content:
            if content.entry.size > MAX_BYTES:
                raise MCPError(INVALID_PARAMS, f"The file has more than {MAX_BYTES} bytes: read parts with read_file.")
            data = b"".join([piece async for piece in content])
    except Error as error:
        raise _refused(error, uri) from error
    kind = guess_type(path)
    text = _read_text(data)
    if text is None:
        blob = base64.b64encode(data).decode()
        kind = kind or "application/octet-stream"
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type=kind, blob=blob)])
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=kind or "text/plain", text=text)])


def _read_text(data: bytes) -> str | None:
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def build_uri(sandbox_id: str, path: str) -> str:
    """Build the URI of a file."""
    return f"{SCHEME}{sandbox_id}/{quote(path, errors='surrogateescape')}"


def _refused(error: Error, uri: str = "") -> MCPError:
    data: Any = {"uri": uri[:1024]} if uri else None
    prefix = "Resource not found: " if isinstance(error, NotFound) else ""
    return MCPError(INVALID_PARAMS, printable(f"{prefix}{explain(error)}"), data)
