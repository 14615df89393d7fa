"""Search of the workspace by file name and by line, in a worker with a time limit."""

from __future__ import annotations

import fnmatch
import os
import posixpath
import re
import signal
import stat
from typing import TYPE_CHECKING, Any

from warren.guest.files.paths import open_at
from warren.guest.files.tree import encode_list
from warren.guest.wire.parameters import invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.files.tree import Found, Walk

SECONDS = 20.0
_LINE_BYTES = 64 << 10
"""A longer line is searched in pieces of this size."""
_SHOWN_CHARACTERS = 500
_BINARY_SAMPLE = 8 << 10


class _OutOfTime(Exception):
    """The time is over; the answer is what was found so far."""


def build_test(literal: str | None, regex: str | None) -> Callable[[bytes], bool] | None:
    """Build the test of each line; None when only names are searched."""
    if literal is not None and regex is not None:
        raise invalid("give text or regex, not both")
    if literal is not None:
        needle = literal.encode("utf-8", "surrogateescape")
        return lambda line: needle in line
    if regex is None:
        return None
    try:
        pattern = re.compile(regex)
    except (re.error, OverflowError, RecursionError) as error:
        raise invalid(f"regex is not a regular expression: {error}") from error
    return lambda line: pattern.search(line.decode("utf-8", "replace")) is not None


def search(
    walk: Walk, name: str | None, literal: str | None, regex: str | None, limit: int, *, seconds: float = SECONDS
) -> tuple[dict[str, Any], bytes]:
    """Build the answer of `fs.search`. Runs in a worker: it uses SIGALRM of that process."""
    matches: list[dict[str, Any]] = []
    complete = True
    # The regex engine checks for signals while it works, so even a catastrophic pattern ends here; the agent's
    # deadline for the worker is the second line.
    signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        test = build_test(literal, regex)
        for found in walk:
            if name is not None and not _is_named(found.path, name):
                continue
            _search_one(found, test, matches, limit)
            if len(matches) >= limit:
                complete = False
                break
    except _OutOfTime:
        complete = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    payload, fits = encode_list(matches)
    return {"complete": complete and fits and walk.complete}, payload


def _search_one(found: Found, test: Callable[[bytes], bool] | None, matches: list[dict[str, Any]], limit: int) -> None:
    if test is None:
        matches.append({"path": found.path})
        return
    if not stat.S_ISREG(found.info.st_mode):
        return
    try:
        fd = open_at(found.place, found.name, os.O_RDONLY)
    except OSError:
        return
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode) or b"\0" in file.peek(_BINARY_SAMPLE)[:_BINARY_SAMPLE]:
            return
        number = 1
        while (line := file.readline(_LINE_BYTES)) and len(matches) < limit:
            if test(line.rstrip(b"\r\n")):
                shown = line.decode("utf-8", "replace").rstrip("\r\n")[:_SHOWN_CHARACTERS]
                matches.append({"path": found.path, "line": number, "text": shown})
            number += line.endswith(b"\n")


def _is_named(path: str, glob: str) -> bool:
    """Match a glob with a slash against the whole path, one without against the last name."""
    return fnmatch.fnmatchcase(path if "/" in glob else posixpath.basename(path), glob)


def _ring(_signal: int, _frame: object) -> None:
    raise _OutOfTime
