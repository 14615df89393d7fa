"""A `run` request, parsed: every field checked and bounded before anything is started."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warren.guest.parameters import (
    get_choice,
    get_env,
    get_flag,
    get_name,
    get_number,
    get_strings,
    get_text,
    invalid,
)
from warren.guest.scratch import MAX_FOLDERS, check_folder

if TYPE_CHECKING:
    from warren.guest.wire import Header

KINDS = ("cell", "script", "shell", "argv")
ECHOES = ("display", "stdout", "none")
KEEPS = ("ends", "head")
MAX_KEPT = 3 << 19
"""Bytes of one output that fit, twice, into a result's payload."""
_LABEL = re.compile(r"[ -~]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One run of code or a command; docs/reference/wire.md has each field's meaning."""

    id: str
    kind: str = "cell"
    code: str = ""
    kernel: str = "main"
    argv: list[str] = field(default_factory=list)
    timeout_s: float | None = None
    grace_s: float = 1.0
    idle_timeout_s: float | None = None
    stdin: bool = False
    stream: bool = True
    paced: bool = False
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    echo: str = "display"
    file: str = ""
    label: str = ""
    figures: str = ""
    scratch: list[str] = field(default_factory=list)
    collect: str = ""
    output_bytes: int = 1 << 20
    output_keep: str = "ends"
    output_max: int = 256 << 20
    kill_leftovers: bool = False
    scan_changes: bool = True
    checkpoint: bool = True

    def without_content(self) -> RunRequest:
        """Return what is worth keeping of it once it has been run."""
        return RunRequest(id=self.id, kind=self.kind, kernel=self.kernel, stream=self.stream, paced=self.paced)


def parse_run(header: Header, payload: bytes) -> RunRequest:
    """Read a `run` request. Raises Refused."""
    kind = get_choice(header, "kind", KINDS, "cell")
    argv = get_strings(header, "argv")
    if kind == "argv" and not (argv and argv[0]):
        raise invalid("argv must name a program")
    grace_s = _seconds(header, "grace_ms")
    return RunRequest(
        id=get_name(header, "exec"),
        kind=kind,
        code=_code(kind, payload),
        kernel=get_name(header, "kernel", "main"),
        argv=argv,
        timeout_s=_seconds(header, "timeout_ms"),
        grace_s=1.0 if grace_s is None else grace_s,
        idle_timeout_s=_seconds(header, "idle_timeout_ms"),
        stdin=get_flag(header, "stdin", default=False),
        stream=get_flag(header, "stream", default=True),
        paced=get_flag(header, "paced", default=False),
        env=get_env(header),
        cwd=None if header.get("cwd") is None else get_text(header, "cwd"),
        echo=get_choice(header, "echo", ECHOES, "display"),
        file=_file(header),
        label=_label(header),
        figures=_folder(header, "figures"),
        scratch=_folders(header),
        collect=_folder(header, "collect"),
        output_bytes=get_number(header, "output_bytes", 1 << 20, high=MAX_KEPT),
        output_keep=get_choice(header, "output_keep", KEEPS, "ends"),
        output_max=get_number(header, "output_max_bytes", 256 << 20, high=1 << 50),
        kill_leftovers=get_choice(header, "leftover", ("keep", "kill"), "keep") == "kill",
        scan_changes=get_flag(header, "changes", default=True),
        checkpoint=get_flag(header, "checkpoint", default=True),
    )


def open_folder(workspace: str, workspace_fd: int, cwd: str) -> int:
    """Open a folder of the workspace to start a program in. The caller closes it. Raises Refused.

    No confinement is needed: whoever may name it may also run `cd` with the same rights.
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


def _file(header: Header) -> str:
    """Read where a script should be: a name, not a path, so that nothing is made or replaced on the way to it."""
    return get_name(header, "file") if header.get("file") else ""


def _label(header: Header) -> str:
    label = get_text(header, "label", "")
    if label and _LABEL.fullmatch(label) is None:
        raise invalid("label must be at most 64 printable characters")
    return label


def _folder(header: Header, key: str) -> str:
    return check_folder(get_text(header, key)) if header.get(key) else ""


def _folders(header: Header) -> list[str]:
    folders = get_strings(header, "scratch")
    if len(folders) > MAX_FOLDERS:
        raise invalid(f"scratch must be at most {MAX_FOLDERS} folders")
    return [check_folder(folder) for folder in folders]


def _seconds(header: Header, key: str) -> float | None:
    value = header.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1e10:
        raise invalid(f"{key} must be a number of milliseconds, 0 or more")
    return float(value) / 1000
