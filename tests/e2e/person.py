"""A person at a terminal, who uses the command line."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from fcntl import ioctl
from typing import TYPE_CHECKING, Protocol, Self

from e2e.forked import Forked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_COLOURS = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


class Desk(Protocol):
    """Where a person works."""

    @property
    def folder(self) -> Path: ...

    @property
    def env(self) -> Mapping[str, str]: ...


class Person:
    """A person at a terminal, who reads before typing."""

    def __init__(self, desk: Desk, *arguments: str) -> None:
        self._terminal, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        self.process = Forked([*arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=desk.folder, env=desk.env)
        os.close(theirs)
        self.seen = b""

    def reads(self, wanted: bytes) -> None:
        deadline = time.monotonic() + 60
        while wanted not in _COLOURS.sub(b"", self.seen):
            ready, _, _ = select.select([self._terminal], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{wanted!r} did not come; there was {self.seen!r}"
            try:
                self.seen += os.read(self._terminal, 65536)
            except OSError as exc:
                raise AssertionError(f"it ended without {wanted!r}; there was {self.seen!r}") from exc

    def types(self, keys: bytes) -> None:
        self.seen = b""
        os.write(self._terminal, keys)

    def resizes(self, columns: int, rows: int) -> None:
        ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def leaves(self) -> int:
        with contextlib.suppress(OSError):
            while os.read(self._terminal, 65536):
                pass
        return self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._terminal)
        with self.process:
            self.process.kill()
