"""Tickets: what a whole `warren run` found out, for the next one like it.

Settings, image and limits take longer to read than a sandbox takes to make. A ticket holds the requests that follow
from them, ready to be sent. It is good for as long as nothing it came from has changed:

1. Its name is a digest of the variables `WARREN_…`, the user and the options that choose a sandbox.
2. It lists the files that were read, specs and Warren's own code, and a digest of their sizes and times.
3. It names the version and the configuration of the keeper; another keeper is not asked for anything.

Anything else, a `warren.toml` in the working folder too, is for the whole command line, which writes a new ticket.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat

from warren.sdk import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

CHOOSING = ("image", "memory", "cpus", "disk")
"""The options of `warren run` that a ticket depends on, as they were typed."""

_FOLDER = "tickets"
_SETTINGS = "warren.toml"
_MOST = 64
_LONGEST = 1 << 20
_SHAPE = {
    "keeper": str, "version": str, "config": dict, "sandboxes": str, "create": dict, "run": dict, "said": list,
    "sources": list, "stamp": str,
}  # fmt: skip
"""What a ticket holds. A file of another shape, or of another kind, is none: a new one is written over it."""
_CODE = ("guest", "render", "engines", "settings", "domain", "core/agent", "core/images", "cli")
"""Folders of Warren that decide what a ticket says."""


def load(asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the ticket of a command, if there is one and it is good."""
    path = _path(asked)
    if path is None:
        return None
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode) or found.st_size > _LONGEST:
                return None
            ticket: dict[str, Any] = json.loads(file.read())
        if not all(isinstance(ticket[name], kind) for name, kind in _SHAPE.items()):
            return None
        return ticket if ticket["stamp"] == _stamp(ticket["sources"]) else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def save(asked: Mapping[str, Any], content: Mapping[str, Any], sources: Iterable[str]) -> None:
    """Write a ticket for commands like this one. A disk that takes none costs time, and nothing else."""
    path = _path(asked)
    if path is None:
        return
    files = [*sources, *(os.path.join(_package(), part) for part in _CODE)]
    folder, partial = os.path.dirname(path), f"{path}.{os.getpid()}"
    with contextlib.suppress(OSError):
        os.makedirs(folder, 0o700, exist_ok=True)
        old = [each for each in os.scandir(folder) if each.name != os.path.basename(path)]
        for each in old if len(old) >= _MOST else ():
            os.unlink(each)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump({**content, "sources": files, "stamp": _stamp(files)}, file)
            os.rename(partial, path)
        except OSError:
            os.unlink(partial)


def _path(asked: Mapping[str, Any]) -> str | None:
    """Return where the ticket of a command is; None where no ticket may be used."""
    variables = environment.list_variables()
    folder = variables.get(environment.DATA_DIR) or environment.default_data_dir()
    if environment.URL in variables or os.path.lexists(_SETTINGS) or not os.path.isabs(folder):
        return None
    folders = [value for name, value in variables.items() if name.endswith(("_DIR", "_DIRS"))]
    if any(each.strip() and not os.path.isabs(each.strip()) for value in folders for each in value.split(",")):
        return None
    known = [variables, os.geteuid(), [asked.get(name) for name in CHOOSING], _package()]
    return os.path.join(folder, _FOLDER, f"{hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]}.json")


def _stamp(sources: Iterable[str]) -> str:
    found: list[tuple[str, int, int]] = []
    for source in sources:
        _look(source, found)
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:32]


def _look(path: str, found: list[tuple[str, int, int]]) -> None:
    try:
        entries = os.scandir(path)
    except NotADirectoryError:
        seen = os.stat(path)
        found.append((path, seen.st_mtime_ns, seen.st_size))
        return
    except FileNotFoundError:
        found.append((path, 0, -1))
        return
    with entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    _look(entry.path, found)
            else:
                seen = entry.stat()
                found.append((entry.path, seen.st_mtime_ns, seen.st_size))


def _package() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
