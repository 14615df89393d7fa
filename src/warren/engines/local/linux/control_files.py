"""Control files of the kernel, in /proc and in control groups: one read or write each."""

from __future__ import annotations

import contextlib
import errno
import os
import time

_REMOVE_TIMEOUT_S = 1.0
_PAUSE_S = 0.001


def read(path: str) -> str:
    """Return the content of a control file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # WHY: a long list of processes comes in several pieces, for any size of the buffer.
        return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b"")).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def write(path: str, text: str) -> None:
    """Write `text` in one call. Raises an OSError that names text and file."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError as exc:
        raise OSError(exc.errno, f"{text!r} cannot be written to {path}: {exc.strerror}") from None


def write_if_there(path: str, text: str) -> None:
    """Write `text` if this host has the file."""
    with contextlib.suppress(FileNotFoundError):
        write(path, text)


def remove_group(folder: str) -> None:
    """Remove a control group; a missing one counts as removed. Raises OSError when it is not empty."""
    deadline = time.monotonic() + _REMOVE_TIMEOUT_S
    while True:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError as exc:
            # WHY: a process that was just killed leaves its group a moment after it can be waited for.
            if exc.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
        else:
            return
