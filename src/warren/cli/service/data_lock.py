"""Who has the data folder: one service at a time, which says in the lock file how it can be found."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.domain.errors import ConfigError
from warren.engines import procfs

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVICE = "service"
COMMAND = "command"

_NAME = "service.lock"
_PATIENCE_S = 0.2
"""For somebody who only looks, which takes the lock for a moment."""
_MAX_BYTES = 4096
_PID_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that has a data folder. What it says of itself is empty until it says so."""

    pid: int
    """0 when it cannot be seen from here, or has not said so yet."""
    kind: str = ""
    """`service`, or `command`: one that needed an engine and found no service."""
    address: str = ""
    log: str = ""

    @property
    def what(self) -> str:
        """Name it in a sentence."""
        return f"process {self.pid}" if self.pid else "another process"


class DataLock:
    """The data folder, while we have it."""

    def __init__(self, lock: int) -> None:
        self._lock = lock

    def note(self, kind: str, *, address: str = "", log: str = "") -> None:
        """Say who we are. Only for others to read: a full disk is for the store to explain."""
        # The start with the pid: by itself it may be that of the one before us, or of another container.
        said = {"kind": kind, "address": address, "log": log, "start": procfs.start_time(os.getpid())}
        text = f"{os.getpid()}\n{json.dumps(said)}\n".encode()
        with contextlib.suppress(OSError):
            # In this order there is always a whole text: what follows the second line does not count.
            os.pwrite(self._lock, text, 0)
            os.ftruncate(self._lock, len(text))


@contextlib.contextmanager
def only_one(data_dir: str, kind: str = SERVICE) -> Iterator[DataLock]:
    """Hold the data folder: two services on one would undo each other's work. Raises Held when somebody else has it."""
    try:
        os.makedirs(data_dir, 0o755, exist_ok=True)
        lock = os.open(os.path.join(data_dir, _NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise ConfigError(f"{data_dir} cannot be written: {exc.strerror}. Choose another with WARREN_DATA_DIR") from exc
    try:
        if not _take(lock):
            holder = _read(lock)
            raise Held(
                f"{data_dir} is served already, by {holder.what}: end that with `warren stop`, "
                "or choose another folder with WARREN_DATA_DIR"
            )
        held = DataLock(lock)
        held.note(kind)
        yield held
    finally:
        os.close(lock)


class Held(ConfigError):
    """Another process has the data folder."""


def find_holder(data_dir: str) -> Holder | None:
    """Say who has a data folder; None when nobody has, whatever a process that died has left there."""
    try:
        lock = os.open(os.path.join(data_dir, _NAME), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ConfigError(
            f"whether a service runs on {data_dir} cannot be told: {exc.strerror}. Ask as its user, or as root"
        ) from exc
    import fcntl  # not for Windows, where this module is imported too

    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(lock)
    else:
        return None
    finally:
        os.close(lock)


def _take(lock: int) -> bool:
    import fcntl

    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        else:
            return True


def _read(lock: int) -> Holder:
    first, second, *_ = [*os.pread(lock, _MAX_BYTES, 0).decode("utf-8", "replace").split("\n", 2), "", ""]
    said: Any = {}
    with contextlib.suppress(ValueError):
        said = json.loads(second)
    if not isinstance(said, dict):
        said = {}
    start = said.get("start")
    pid = int(first) if first.isascii() and first.isdigit() and len(first) <= _PID_DIGITS else 0
    is_here = isinstance(start, int) and procfs.is_alive(pid, start)
    return Holder(pid if is_here else 0, **{name: str(said.get(name, "")) for name in ("kind", "address", "log")})
