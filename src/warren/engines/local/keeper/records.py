"""What the keeper knows of each sandbox, on disk, so that a keeper that was killed can be followed by another."""

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
"""Of a process that is ready to be a sandbox and is none yet."""
_LATER = ("gpus", "device_group")
"""Fields that not all versions of records have; they are written only where they say something."""


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
    """Which id of the keeper's block is its own."""
    group: str = ""
    """Name of its control group."""
    pid: int = 0
    start_time: int = 0
    """With the pid, what makes the process unmistakable."""
    limits: dict[str, float] = field(default_factory=dict)
    layers: list[str] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    """Full names of the devices it has."""
    device_group: str = ""
    """Folder of a control group made for its devices alone."""

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
        """Its workspace, as a folder: rootless, and only if the operator gave up the disk layer."""
        return os.path.join(self.folder, "workspace")

    def save(self, **differing: Any) -> None:
        """Write it to its folder, with these values differing from what we hold."""
        value = vars(self) | differing
        del value["folder"]
        for name in _LATER:
            # WHY: an earlier version, to which an operator may go back, takes a record with them for a broken one.
            if not value[name]:
                del value[name]
        state_files.save(os.path.join(self.folder, "record.json"), value)

    def move(self, folder: str) -> None:
        """Have its folder, with all that is in it, be another one, which must not be there."""
        os.rename(self.folder, folder)
        self.folder = folder

    def open_process(self) -> int:
        """Return a descriptor of its process 1, which the caller closes; -1 when that does not run any more."""
        try:
            pidfd = os.pidfd_open(self.pid) if self.pid > 0 else -1
        except ProcessLookupError:
            return -1
        # In this order: what the descriptor stands for is what is looked at, or has ended since it was opened.
        if pidfd >= 0 and not procfs.is_alive(self.pid, self.start_time):
            os.close(pidfd)
            return -1
        return pidfd

    def disown(self) -> None:
        """Forget process and groups without a word to them: they are those of the sandbox that this is a copy of."""
        self.pid = self.start_time = 0
        self.group = self.device_group = ""

    def drop_runtime(self) -> None:
        """Forget process and socket; what stays can be started again."""
        self.pid = self.start_time = 0
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)

    def drop_workspace(self) -> None:
        """Remove the workspace."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.disk)
        shutil.rmtree(self.directory, ignore_errors=True)

    def erase(self) -> None:
        """Remove every file; the name goes first, so that a half-erased sandbox is never found again."""
        grave = os.path.join(os.path.dirname(self.folder), f".erased-{self.id}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.folder, grave)
        shutil.rmtree(grave, ignore_errors=True)


def load_records(folder: str) -> Iterator[Record]:
    """Read all records below `folder`; finishes erasing what an earlier keeper had begun to erase."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.startswith(".erased-"):
            shutil.rmtree(path, ignore_errors=True)
            continue
        yield _load(path, name)


def _load(path: str, name: str) -> Record:
    known = {each.name for each in fields(Record)}
    # What a later version wrote besides: a record that is not understood whole is still one, with a workspace.
    noted = {key: value for key, value in state_files.load(os.path.join(path, "record.json")).items() if key in known}
    try:
        return Record(**{**noted, "folder": path})
    except TypeError:
        # Killed between making the folder and writing the first record: there is nothing in it yet.
        return Record(id=name, folder=path, state=BROKEN)
