"""The terminals of a sandbox, over the connection to its agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.core.agent.editor import EditorClient
from warren.core.agent.streams import ByteStream
from warren.core.agent.values import get_bool, get_int, get_objects, get_signed, get_str
from warren.guest.wire.frames import ProtocolError

if TYPE_CHECKING:
    from warren.core.agent.streams import AgentStream
    from warren.guest.wire.frames import Header

WINDOW = 128 << 10
"""Unread output of a program; more would only make old what is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalState:
    """An existing terminal."""

    name: str
    program: str
    cols: int
    rows: int
    viewers: int
    """Attached now."""
    age_s: float


class Terminal(ByteStream):
    """A program on a terminal inside the sandbox. Closing this leaves it running: attach again, or close it by name."""

    def __init__(
        self, agent: TerminalClient, name: str, stream: AgentStream, *, created: bool, scrollback: int
    ) -> None:
        super().__init__(stream)
        self._agent = agent
        self.name = name
        self.created = created
        """Whether it was opened just now, and not before."""
        self.scrollback = scrollback
        """How many of the first bytes were written before we attached."""

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of the terminal."""
        await self._agent.call("terminal.resize", {"terminal": self.name, "cols": cols, "rows": rows})

    async def hang_up(self) -> None:
        """End the program as a closed window would."""
        await self._agent.close_terminal(self.name)

    async def exit_code(self) -> int:
        """Wait for the program to end."""
        return self._agent.checked(get_signed, await self.wait(), "exit_code")


class TerminalClient(EditorClient):
    """A connection that handles terminals."""

    async def terminal(
        self,
        name: str,
        *,
        argv: tuple[str, ...] = (),
        cols: int | None = None,
        rows: int | None = None,
        attach: bool = False,
    ) -> Terminal:
        """Start a program, bash by default, on a new terminal; with `attach`, join an existing one of that name."""
        size = {key: value for key, value in (("cols", cols), ("rows", rows)) if value is not None}
        asked: Header = {"terminal": name, "env": {}, "attach": attach, **size}
        if argv:
            asked["argv"] = list(argv)
        return await self._join("terminal.open", name, asked)

    async def attach_terminal(self, name: str) -> Terminal:
        """Join an existing terminal: first its scroll-back, then its output."""
        return await self._join("terminal.attach", name, {"terminal": name})

    async def terminals(self) -> tuple[TerminalState, ...]:
        """List the terminals."""
        header, _ = await self.call("terminals")
        return self.checked(lambda: tuple(_parse_state(one) for one in get_objects(header, "terminals")))

    async def close_terminal(self, name: str) -> None:
        """End the program on a terminal."""
        await self.call("terminal.close", {"terminal": name})

    async def _join(self, op: str, name: str, asked: Header) -> Terminal:
        stream = await self.request(op, asked, window=WINDOW)
        try:
            header, _ = await stream.next()
            created, scrollback = self.checked(_parse_attached, header)
        except BaseException:
            stream.close()
            raise
        return Terminal(self, name, stream, created=created, scrollback=scrollback)


def _parse_attached(header: Header) -> tuple[bool, int]:
    if header["t"] != "event" or header.get("kind") != "attached":
        raise ProtocolError("a terminal that is neither attached nor refused")
    return get_bool(header, "created"), get_int(header, "scrollback")


def _parse_state(value: dict[str, Any]) -> TerminalState:
    return TerminalState(
        name=get_str(value, "name"),
        program=get_str(value, "program"),
        cols=get_int(value, "cols"),
        rows=get_int(value, "rows"),
        viewers=get_int(value, "viewers"),
        age_s=get_int(value, "age_ms") / 1000,
    )
