"""Terminals: a program on a pseudo-terminal, its scroll-back, and the streams attached to it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import struct
import termios
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from warren.guest.system import processes
from warren.guest.system.loop import READ, WRITE
from warren.guest.wire.frames import CHUNK
from warren.guest.wire.parameters import Refused
from warren.guest.wire.streams import BUSY_BACKLOG

if TYPE_CHECKING:
    import resource

    from warren.guest.agent import Agent
    from warren.guest.wire.streams import Stream

SCROLLBACK = 256 << 10
MAX_VIEWERS = 64
HANGUP_GRACE_S = 1.0
_LINE_SEARCH = 4096
_END = rb"(?:\x07|\x1b\\)"
_QUERIES = re.compile(
    rb"\x05|\x1bZ"
    rb"|\x1b\[[?>=]?[0-9;]{0,32}c"  # Device attributes.
    rb"|\x1b\[\??[0-9;]{0,32}n"  # Device status, cursor position.
    rb"|\x1b\[\??[0-9;]{0,32}\$p"  # Modes.
    rb"|\x1b\[>[0-9]{0,4}q|\x1b\[\?u|\x1b\[[01]?x"
    rb"|\x1b\[(?:1[13-9]|2[01])(?:;[0-9]{0,8}){0,2}t"  # Window size and title.
    rb"|\x1b\](?:4|5|1[0-9]|52);(?:[^\x07\x1b]{0,64};)?\?"
    + _END  # Colours, clipboard.
    + rb"|\x1bP[$+]q[^\x07\x1b]{0,1024}"
    + _END
)
"""Sequences that a terminal answers, as if typed."""


class Viewer:
    """One attached stream. A slow one falls behind and then skips to the scroll-back; it never blocks the program."""

    def __init__(self, terminal: Terminal, stream: Stream) -> None:
        self._terminal = terminal
        self._stream = stream
        is_cut = terminal.written > len(terminal.scrollback)
        self._replay = memoryview(build_replay(bytes(terminal.scrollback), is_cut=is_cut))
        self._position = terminal.written
        stream.event({"kind": "attached", "created": not terminal.attached, "scrollback": len(self._replay)})
        stream.on_data = lambda data: terminal.type(stream, data)
        stream.on_credit = self.pump
        stream.on_close = lambda: terminal.detach(self)

    def pump(self) -> None:
        """Send unseen output, as far as credit goes, and after the last of it the answer."""
        terminal, stream = self._terminal, self._stream
        start = terminal.written - len(terminal.scrollback)
        self._position = max(self._position, start)
        while (self._replay or self._position < terminal.written) and stream.credit > 0 and not stream.closed:
            if stream.connection.backlog >= BUSY_BACKLOG:
                stream.connection.on_drained.add(self.pump)
                return
            stream.send(self._take(min(CHUNK, stream.credit), start))
        if not self._replay and self._position == terminal.written and terminal.exit_code is not None:
            terminal.detach(self)
            stream.reply({"exit_code": terminal.exit_code})

    def _take(self, size: int, start: int) -> bytes:
        if self._replay:
            data = bytes(self._replay[:size])
            self._replay = self._replay[size:] if size < len(self._replay) else memoryview(b"")
            return data
        at = self._position - start
        data = bytes(self._terminal.scrollback[at : at + size])
        self._position += len(data)
        return data


class Terminal:
    """One program on a pseudo-terminal."""

    def __init__(self, agent: Agent, name: str, pid: int, master: int, program: str) -> None:
        self._agent = agent
        self._name = name
        self._pid = pid
        self._program = program
        self._started = time.monotonic()
        self.attached = 0
        """How often a stream has been attached."""
        self._master: int | None = master
        self._viewers: list[Viewer] = []
        self._typed: deque[tuple[Stream, bytes]] = deque()
        self.scrollback = bytearray()
        self.written = 0
        """Bytes its program has written in all."""
        self.exit_code: int | None = None
        os.set_blocking(master, False)
        agent.loop.watch(master, READ, self._ready)
        agent.loop.on_exit(pid, self._exited)

    def attach(self, stream: Stream) -> None:
        """Send a stream the scroll-back and later output, and accept its input. Raises Refused."""
        if len(self._viewers) >= MAX_VIEWERS:
            raise Refused("conflict", f"{MAX_VIEWERS} are attached to terminal {self._name} already")
        viewer = Viewer(self, stream)
        self.attached += 1
        self._viewers.append(viewer)
        viewer.pump()
        if self.attached > 1:
            self._redraw()

    def describe(self) -> dict[str, Any]:
        """Describe it for `terminals`."""
        columns, rows = get_size(self._master) if self._master is not None else (0, 0)
        return {
            "name": self._name,
            "program": self._program,
            "cols": columns,
            "rows": rows,
            "viewers": len(self._viewers),
            "age_ms": round((time.monotonic() - self._started) * 1000),
        }

    def detach(self, viewer: Viewer) -> None:
        """Remove a viewer; the program runs on."""
        if viewer in self._viewers:
            self._viewers.remove(viewer)

    def type(self, stream: Stream, data: bytes) -> None:
        """Queue input of a stream; the stream's window bounds it."""
        self._typed.append((stream, data))
        self._write()

    def resize(self, columns: int, rows: int) -> None:
        """Set the size; the program gets SIGWINCH."""
        if self._master is not None:
            set_size(self._master, columns, rows)

    def hang_up(self) -> None:
        """Send SIGHUP as a closed window does, and SIGKILL after a grace."""
        processes.send_group(self._pid, signal.SIGHUP)
        self._agent.loop.call_later(HANGUP_GRACE_S, self._kill)

    def _redraw(self) -> None:
        """Make a full-screen program redraw: the replay of a new viewer may begin in the middle of a screen."""
        if self._master is None:
            return
        with contextlib.suppress(OSError):
            group = os.tcgetpgrp(self._master)
            # WHY: 0, when there is none, would be the agent's own group.
            if group > 1:
                processes.send_group(group, signal.SIGWINCH)

    def _kill(self) -> None:
        if self._master is not None:
            processes.send_group(self._pid, signal.SIGKILL)
            processes.end(self._pid, None, contained=self._agent.boot.contained)

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._write()
        if events & READ:
            self._read()

    def _read(self) -> bool:
        if self._master is None:
            return False
        try:
            data = os.read(self._master, 64 << 10)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            # Every program has closed it; the exit follows.
            self._agent.loop.unwatch(self._master)
            return False
        self.written += len(data)
        self.scrollback += data
        if len(self.scrollback) > SCROLLBACK:
            del self.scrollback[: len(self.scrollback) - SCROLLBACK]
        for viewer in list(self._viewers):
            viewer.pump()
        return True

    def _write(self) -> None:
        while self._typed and self._master is not None:
            stream, data = self._typed[0]
            try:
                done = os.write(self._master, data)
            except BlockingIOError:
                self._agent.loop.watch(self._master, READ | WRITE, self._ready)
                return
            except OSError:
                done = len(data)
            stream.consumed(done)
            if done < len(data):
                self._typed[0] = (stream, data[done:])
            else:
                self._typed.popleft()
        if self._master is not None:
            self._agent.loop.watch(self._master, READ, self._ready)

    def _exited(self, status: int, _usage: resource.struct_rusage) -> None:
        assert self._master is not None
        # Bounded: a background process may write to the terminal for ever.
        for _ in range(16):
            if not self._read():
                break
        self._agent.loop.unwatch(self._master)
        os.close(self._master)
        self._master = None
        self._agent.terminals.pop(self._name, None)
        self.exit_code = os.waitstatus_to_exitcode(status)
        for viewer in list(self._viewers):
            viewer.pump()


def build_replay(shown: bytes, *, is_cut: bool) -> bytes:
    """Return the scroll-back for a new viewer, from the start of a line where its beginning is lost.

    WHY without queries: the viewer's terminal would answer them again, and the program would read the answer as keys.
    """
    if is_cut:
        shown = shown[shown.find(b"\n", 0, _LINE_SEARCH) + 1 :]
    return _QUERIES.sub(b"", shown)


def set_size(master: int, columns: int, rows: int) -> None:
    """Set the size of a terminal."""
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def get_size(master: int) -> tuple[int, int]:
    """Return columns and rows of a terminal."""
    rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(master, termios.TIOCGWINSZ, bytes(8)))
    return columns, rows
