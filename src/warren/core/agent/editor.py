"""The text editor of a sandbox, over the connection to its agent."""

from __future__ import annotations

from dataclasses import dataclass

from warren.core.agent.files import FileClient
from warren.core.agent.values import get_bool, get_int, get_str
from warren.domain.errors import TooLarge
from warren.guest.wire.frames import MAX_PAYLOAD, Header, ProtocolError


@dataclass(frozen=True, slots=True)
class Viewed:
    """A file or a part of it, or the names in a folder."""

    content: bytes
    is_folder: bool
    lines: int
    """In the whole file."""
    first: int
    """The number of the first line that is shown."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """How often a text was found. Found once, it was replaced: `before` and `after` are the whole lines around it."""

    matches: int
    line: int = 0
    before: bytes = b""
    after: bytes = b""


class EditorClient(FileClient):
    """A connection that edits text files. Errors are as of the other file operations."""

    async def view_text(self, path: str, first: int | None = None, last: int | None = None) -> Viewed:
        """Show a file, some lines of it, or two levels of a folder."""
        asked: Header = {"path": path}
        asked |= {name: line for name, line in (("first", first), ("last", last)) if line is not None}
        header, payload = await self.call("edit.view", asked)
        return self.checked(
            lambda: Viewed(
                payload, get_str(header, "type") == "directory", get_int(header, "lines"), get_int(header, "first")
            )
        )

    async def create_text(self, path: str, text: bytes, *, overwrite: bool = False) -> tuple[bool, bool]:
        """Make a file; return whether it was made, and whether it replaced another."""
        header, _ = await self._edit("edit.create", {"path": path, "overwrite": overwrite}, text)
        return self.checked(get_bool, header, "created"), self.checked(get_bool, header, "replaced")

    async def replace_text(self, path: str, old: bytes, new: bytes) -> Replaced:
        """Replace a text that is in a file exactly once."""
        header, payload = await self._edit("edit.replace", {"path": path, "split": len(old)}, old + new)
        return self.checked(_parse_replaced, header, payload)

    async def insert_text(self, path: str, line: int, text: bytes) -> tuple[bool, int]:
        """Insert after a line; return whether there is such a line, and how many there were."""
        header, _ = await self._edit("edit.insert", {"path": path, "line": line}, text)
        return self.checked(get_bool, header, "inserted"), self.checked(get_int, header, "lines")

    async def undo_text(self, path: str) -> bool:
        """Undo the last edit of a file; return whether there was one."""
        header, _ = await self._edit("edit.undo", {"path": path})
        return self.checked(get_bool, header, "undone")

    async def _edit(self, op: str, asked: Header, text: bytes = b"") -> tuple[Header, bytes]:
        if len(text) > MAX_PAYLOAD:
            raise TooLarge(f"an edit is at most {MAX_PAYLOAD} bytes: upload a larger file")
        return await self.call(op, asked, text)


def _parse_replaced(header: Header, payload: bytes) -> Replaced:
    matches = get_int(header, "matches")
    if matches != 1:
        return Replaced(matches)
    split = get_int(header, "split")
    if split > len(payload):
        raise ProtocolError("a replacement that is cut outside of itself")
    return Replaced(1, get_int(header, "line"), payload[:split], payload[split:])
