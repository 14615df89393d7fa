"""Registry: the records of all sandboxes of one data folder, and the watch on process 1 of each that runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict, SandboxLost
from warren.domain.values import Storage
from warren.engines.local.keeper import records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.engines.local.keeper.records import Record
    from warren.engines.local.linux.cgroups import Cgroups
    from warren.engines.local.linux.devices import DeviceControl


class Registry:
    """Sandboxes by id. The end of a process 1 cleans up after its sandbox."""

    def __init__(self, folder: str, cgroups: Cgroups, devices: DeviceControl) -> None:
        self._folder = folder
        self._cgroups = cgroups
        self._devices = devices
        self._records: dict[str, Record] = {}
        self._watched: dict[str, int] = {}
        """The pidfd of process 1 of each running sandbox, by sandbox id."""
        self._ended: dict[str, asyncio.Event] = {}

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._records.values()))

    @property
    def is_busy(self) -> bool:
        """Whether any sandbox is running."""
        return bool(self._watched)

    @property
    def uid_indexes(self) -> set[int]:
        """The uid indexes in use."""
        return {record.uid_index for record in self._records.values()}

    def load(self) -> None:
        """Adopt the sandboxes of an earlier keeper, or clean up after those that have ended."""
        for record in records.load_records(self._folder):
            self._records[record.id] = record
            if self._cgroups.is_copied:
                record.disown()
            self._adopt(record)

    def close(self) -> None:
        """Stop watching; the sandboxes run on."""
        loop = asyncio.get_running_loop()
        for fd in self._watched.values():
            loop.remove_reader(fd)
            os.close(fd)

    def get(self, sandbox_id: str) -> Record | None:
        """Return a record, or None."""
        return self._records.get(sandbox_id)

    def find(self, sandbox_id: str, *, running: bool = False) -> Record:
        """Return a record. Raises SandboxLost when there is none, or when it must be `running` and is not."""
        record = self._records.get(sandbox_id)
        if record is None:
            raise SandboxLost(f"there is no sandbox {sandbox_id}")
        if running and record.state != records.RUNNING:
            raise SandboxLost("the sandbox is not running")
        return record

    def path(self, sandbox_id: str) -> str:
        """Return the folder of a sandbox, which need not exist."""
        return os.path.join(self._folder, sandbox_id)

    def is_new(self, sandbox_id: str) -> bool:
        """Whether no sandbox has that id."""
        return not os.path.lexists(self.path(sandbox_id))

    def create(self, record: Record) -> None:
        """Make the folder of a new sandbox, and save its record there. Raises Conflict when the id is taken."""
        try:
            os.mkdir(record.folder, 0o700)
        except FileExistsError:
            raise Conflict(f"sandbox {record.id} exists already") from None
        record.save()
        self.add(record)

    def add(self, record: Record) -> None:
        """Add the record of a process that was forked ahead and is a sandbox from now on."""
        self._records[record.id] = record

    def watch(self, record: Record, pidfd: int) -> None:
        """Watch process 1 of a sandbox; the descriptor is closed here when it ends."""
        self._watched[record.id] = pidfd
        self._ended[record.id] = asyncio.Event()
        asyncio.get_running_loop().add_reader(pidfd, self._died, record)

    async def end(self, record: Record) -> None:
        """Kill process 1, and with it everything in the sandbox, and clean up after its exit."""
        await self._kill(record)
        self._clean_up(record)

    async def destroy(self, record: Record) -> None:
        """Kill process 1 and remove every trace of the sandbox."""
        await self._kill(record)
        self._remove_group(record)
        self.forget(record)

    def forget(self, record: Record) -> None:
        """Remove the record and the folder of a sandbox that has ended."""
        self._records.pop(record.id, None)
        record.erase()

    def _died(self, record: Record) -> None:
        pidfd = self._watched.pop(record.id)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
        self._ended.pop(record.id).set()
        if record.state == records.RUNNING:
            self._clean_up(record)

    async def _kill(self, record: Record) -> None:
        record.state = records.STOPPED if record.state == records.RUNNING else record.state
        ended = self._ended.get(record.id)
        if ended is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watched[record.id], signal.SIGKILL)
            await ended.wait()

    def _clean_up(self, record: Record) -> None:
        """Remove what a stopped sandbox does not need: its group, its socket, an ephemeral workspace."""
        self._remove_group(record)
        record.drop_runtime()
        if record.storage == Storage.EPHEMERAL:
            record.drop_workspace()
        record.state = records.STOPPED
        if os.path.isdir(record.folder):
            # On a full disk the old record stays, with a process that has ended: the next keeper cleans up again. A
            # full disk must not keep anything from being removed.
            with contextlib.suppress(OSError):
                record.save()

    def _remove_group(self, record: Record) -> None:
        if record.group:
            group = self._cgroups.group(record.group)
            group.kill()
            group.remove()
            self._devices.release(record.device_group)
            record.group = record.device_group = ""

    def _adopt(self, record: Record) -> None:
        pidfd = record.open_process()
        if pidfd >= 0 and record.state == records.RUNNING:
            self.watch(record, pidfd)
            return
        if pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
        self._clean_up(record)
