"""Records: the state of each sandbox on disk, so that another keeper can follow one that was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from warren.engines import procfs, state_files

if TYPE_CHECKING:
    from collections.abc import Iterator

MAKING, RUNNING, STOPPED, BROKEN = "making", "running", "stopped", "broken"
NEXT = "next"
"""Of a process that is forked ahead and not assigned to a sandbox yet."""
_LATER = ("gpus", "device_group", "store_id")
"""Fields that earlier versions do not have; they are written only when set."""


@dataclass(kw_only=True)
class Record:
    """One sandbox. Written before anything is made and after every change; `save` is atomic."""

    id: str
    folder: str
    state: str = MAKING
    storage: str = "ephemeral"
    image: str = ""
    """Digest of the image it is made from."""
    uid_index: int = 0
    """Its id in the keeper's block of host ids."""
    group: str = ""
    """Name of its control group."""
    pid: int = 0
    start_time: int = 0
    """Identifies the process together with the pid."""
    limits: dict[str, float] = field(default_factory=dict)
    layers: list[str] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    """Full names of the devices it has."""
    device_group: str = ""
    """Folder of a control group that was made only for its devices."""
    store_id: str = ""
    """The store that has its record; the engine only keeps it."""

    @property
    def socket(self) -> str:
        """Where its agent listens."""
        return os.path.join(self.folder, "agent.sock")

    @property
    def disk(self) -> str:
        """Its workspace, as a disk image."""
        return os.path.join(self.folder, "workspace.ext4")

    @property
    def directory(self) -> str:
        """Its workspace, as a folder: rootless, and only where the operator gave up the disk layer."""
        return os.path.join(self.folder, "workspace")

    def save(self, **differing: Any) -> None:
        """Write it to its folder, with these values in place of the current ones."""
        value = vars(self) | differing
        del value["folder"]
        for name in _LATER:
            # WHY: an earlier version, to which an operator may go back, rejects a record with unknown fields.
            if not value[name]:
                del value[name]
        state_files.save(os.path.join(self.folder, "record.json"), value)

    def move(self, folder: str) -> None:
        """Rename its folder; the target must not exist."""
        os.rename(self.folder, folder)
        self.folder = folder

    def open_process(self) -> int:
        """Return a pidfd of its process 1, which the caller closes; -1 when it has ended."""
        try:
            pidfd = os.pidfd_open(self.pid) if self.pid > 0 else -1
        except ProcessLookupError:
            return -1
        # In this order: the process that is checked is that of the pidfd, or has ended since it was opened.
        if pidfd >= 0 and not procfs.is_alive(self.pid, self.start_time):
            os.close(pidfd)
            return -1
        return pidfd

    def disown(self) -> None:
        """Forget process and groups without touching them: they belong to the original of this copied folder."""
        self.pid = self.start_time = 0
        self.group = self.device_group = ""

    def drop_runtime(self) -> None:
        """Forget process and socket; the sandbox can be started again."""
        self.pid = self.start_time = 0
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)

    def drop_workspace(self) -> None:
        """Remove the workspace."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.disk)
        shutil.rmtree(self.directory, ignore_errors=True)

    def erase(self) -> None:
        """Remove every file; the folder is renamed first, so that a half-erased sandbox is never loaded."""
        grave = os.path.join(os.path.dirname(self.folder), f".erased-{self.id}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.folder, grave)
        shutil.rmtree(grave, ignore_errors=True)


def load_records(folder: str) -> Iterator[Record]:
    """Load all records below `folder`; finishes the erasures of an earlier keeper."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.startswith(".erased-"):
            shutil.rmtree(path, ignore_errors=True)
            continue
        yield _load(path, name)


def _load(path: str, name: str) -> Record:
    known = {each.name for each in fields(Record)}
    # Fields of a later version are ignored: the record still names a workspace.
    saved = {key: value for key, value in state_files.load(os.path.join(path, "record.json")).items() if key in known}
    try:
        return Record(**{**saved, "folder": path})
    except TypeError:
        # The keeper was killed between making the folder and writing the first record: the folder is empty.
        return Record(id=name, folder=path, state=BROKEN)
