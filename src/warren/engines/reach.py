"""Reach: a random id in the folder of an engine, made once. It says which sandboxes that engine can connect to."""

from __future__ import annotations

import contextlib
import os
import re
import secrets

from warren.domain.errors import EngineUnavailable

_NAME = "reach"
_ID = re.compile(r"[0-9a-f]{32}")


def load_reach(folder: str) -> str:
    """Return the id of an engine's folder, which exists; makes it if need be. Raises EngineUnavailable."""
    path = os.path.join(folder, _NAME)
    try:
        if not os.path.exists(path):
            _make(path)
        with open(path, encoding="ascii", errors="replace") as file:
            found = file.read(64).strip()
    except OSError as error:
        raise EngineUnavailable(f"{path} cannot be read or made: {error.strerror}") from error
    if not _ID.fullmatch(found):
        raise EngineUnavailable(f"{path} is damaged: restore it from a backup, since it names this folder's sandboxes")
    return found


def _make(path: str) -> None:
    draft = f"{path}.{secrets.token_hex(8)}"
    try:
        with open(draft, "x", encoding="ascii", opener=_open_private) as file:
            file.write(f"{secrets.token_hex(16)}\n")
            file.flush()
            # WHY: records of sandboxes name this id. Without it, after a power failure, they would be another's.
            os.fsync(file.fileno())
        # WHY: unlike a rename, a link fails where another process was first; both then use its id.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
