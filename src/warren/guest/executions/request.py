"""Parsing a `run` request: every field is checked and bounded before anything is started."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from warren.guest.files.scratch import MAX_FOLDERS, check_folder
from warren.guest.wire.parameters import (
    get_choice,
    get_env,
    get_flag,
    get_name,
    get_number,
    get_strings,
    get_text,
    invalid,
)
from warren.guest.wire.run_request import ECHOES, KEEPS, KINDS, WIRE_NAMES, RunRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.wire.frames import Header

MAX_KEPT = 3 << 19
"""Bytes of one output that fit, twice, into a result's payload."""
_LABEL = re.compile(r"[ -~]{1,64}")


def parse_run(header: Header, payload: bytes) -> RunRequest:
    """Parse a `run` request; only the fields that are present cost time. Raises Refused."""
    asked = {name: read(header, parameter) for name, parameter, read in _READ if parameter in header}
    kind = asked.get("kind", "cell")
    if kind == "argv" and not (asked.get("argv") and asked["argv"][0]):
        raise invalid("argv must name a program")
    if asked.get("whole") and asked.get("stream", True):
        raise invalid("whole needs stream to be false")
    return RunRequest(id=get_name(header, "exec"), code=_code(kind, payload), **asked)


def open_folder(workspace: str, workspace_fd: int, cwd: str) -> int:
    """Open a folder of the workspace to start a program in. The caller closes it. Raises Refused.

    It needs no confinement: the program that starts there may run `cd` with the same rights.
    """
    path = relative_folder(workspace, cwd)
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=workspace_fd)
    except (OSError, ValueError):
        raise invalid(f"cwd {cwd[:256]!r} is not a folder of the workspace") from None


def relative_folder(workspace: str, cwd: str) -> str:
    """Return `cwd`, relative or absolute below the workspace, as a path relative to it. Raises Refused."""
    path = os.path.normpath(os.path.relpath(cwd, workspace) if cwd.startswith("/") else cwd)
    if path.startswith("/") or path.split("/")[0] == "..":
        raise invalid(f"cwd {cwd[:256]!r} is outside the workspace")
    return path


def _code(kind: str, payload: bytes) -> str:
    if kind == "shell" and b"\0" in payload:
        raise invalid("a command must be without NUL")
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise invalid("the code is not UTF-8") from None


def _label(header: Header, key: str) -> str:
    label = get_text(header, key)
    if label and _LABEL.fullmatch(label) is None:
        raise invalid("label must be at most 64 printable characters")
    return label


def _folder(header: Header, key: str) -> str:
    return check_folder(get_text(header, key)) if header[key] else ""


def _folders(header: Header, key: str) -> tuple[str, ...]:
    folders = get_strings(header, key)
    if len(folders) > MAX_FOLDERS:
        raise invalid(f"scratch must be at most {MAX_FOLDERS} folders")
    return tuple(check_folder(folder) for folder in folders)


def _seconds(header: Header, key: str) -> float | None:
    value = header[key]
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1e10:
        raise invalid(f"{key} must be a number of milliseconds, 0 or more")
    return float(value) / 1000


def _grace(header: Header, key: str) -> float:
    grace_s = _seconds(header, key)
    return 1.0 if grace_s is None else grace_s


_flag = partial(get_flag, default=False)
_READERS: dict[str, Callable[[Header, str], Any]] = {
    "kind": partial(get_choice, among=KINDS),
    "kernel": get_name,
    "argv": lambda header, key: tuple(get_strings(header, key)),
    "timeout_s": _seconds,
    "idle_timeout_s": _seconds,
    "grace_s": _grace,
    "stdin": _flag,
    "stream": _flag,
    "whole": _flag,
    "paced": _flag,
    "env": lambda header, _key: get_env(header),
    "cwd": lambda header, key: None if header[key] is None else get_text(header, key),
    "echo": partial(get_choice, among=ECHOES),
    # A name, not a path: no folder on the way is made or replaced.
    "file": lambda header, key: get_name(header, key) if header[key] else "",
    "label": _label,
    "figures": _folder,
    "collect": _folder,
    "scratch": _folders,
    "output_bytes": partial(get_number, high=MAX_KEPT),
    "output_max_bytes": partial(get_number, high=1 << 50),
    "output_keep": partial(get_choice, among=KEEPS),
    "kill_leftovers": lambda header, key: get_choice(header, key, ("keep", "kill")) == "kill",
    "scan_changes": _flag,
    "checkpoint": _flag,
}
_READ = tuple((name, parameter, _READERS[name]) for name, parameter in WIRE_NAMES.items())
