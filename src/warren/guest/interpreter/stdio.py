"""Standard input and output of a process that runs user code: descriptors 0 to 2 and the Python files on them."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def attach(fds: Sequence[int]) -> None:
    """Move `fds` to 0, 1 and 2; standard input starts afresh."""
    for target, fd in enumerate(fds):
        os.dup2(fd, target, inheritable=True)
    for fd in fds:
        if fd > 2:
            os.close(fd)
    # A used one remembers end of file, and bytes read ahead of the program.
    if sys.stdin is not sys.__stdin__ or not _is_unread(sys.stdin):
        sys.stdin = sys.__stdin__ = _open_input()  # type: ignore[misc]
    for name in ("stdout", "stderr"):
        _revive(name)


def detach() -> None:
    """Point 0, 1 and 2 at /dev/null, so that this process holds no pipe of a finished cell; flush before."""
    try:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for target in range(3):
            os.dup2(null, target, inheritable=True)
        # It is one of the three when user code had closed it.
        if null > 2:
            os.close(null)
    except OSError:
        pass  # No descriptor is free: the pipes stay until the next cell.
    # Unwritten output (descriptor 1 closed, its reader gone), or later output, must not appear in the next cell.
    flush()


def flush() -> bool:
    """Flush all files that user code may have written to; returns whether all output was written."""
    complete = True
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        stream: Any = getattr(sys, name, None)
        try:
            if not _is_closed(stream):
                stream.flush()
        except Exception:
            complete = False
    return complete


def write_error(text: str) -> None:
    """Write to `sys.stderr`, or else to descriptor 2; never raises."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except Exception:
        try:
            os.write(2, text.encode("utf-8", "backslashreplace"))
        except OSError:
            return


def open_outputs(*, is_buffered: bool = True) -> None:
    """Open new output files; those inherited by the fork may hold the parent's text."""
    for name in ("stdout", "stderr"):
        stream = _open_output(name, is_buffered=is_buffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _revive(name: str) -> None:
    # User code keeps references to sys.stdout (a logging handler does), so the object stays the same over cells, and
    # so does a replacement by user code, unless it was closed.
    if _is_closed(getattr(sys, f"__{name}__", None)):
        setattr(sys, f"__{name}__", _open_output(name))
    if _is_closed(getattr(sys, name, None)):
        setattr(sys, name, getattr(sys, f"__{name}__"))


def _is_closed(stream: Any) -> bool:
    try:
        return stream is None or bool(getattr(stream, "closed", False))
    except Exception:
        return True


class _Input(io.FileIO):
    """Standard input that records whether it was read."""

    is_unread = True

    def readinto(self, buffer: Any, /) -> int | None:
        self.is_unread = False
        return super().readinto(buffer)

    def readall(self) -> bytes:
        self.is_unread = False
        return super().readall()

    def read(self, size: int | None = -1, /) -> Any:
        self.is_unread = False
        return super().read(size)


def _is_unread(stream: Any) -> bool:
    try:
        return not stream.closed and type(stream.buffer.raw) is _Input and stream.buffer.raw.is_unread
    except (AttributeError, ValueError):
        return False


def _open_input() -> io.TextIOWrapper:
    raw = io.BufferedReader(_Input(0, "r", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape")


def _open_output(name: str, *, is_buffered: bool = True) -> io.TextIOWrapper:
    fd = 1 if name == "stdout" else 2
    file = io.FileIO(fd, "w", closefd=False)
    raw: Any = io.BufferedWriter(file) if is_buffered else file
    errors = "surrogateescape" if fd == 1 else "backslashreplace"
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=True, write_through=True)
