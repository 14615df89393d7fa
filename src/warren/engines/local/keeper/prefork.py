"""Prefork: makes the processes of sandboxes, and one ahead for each image and kind of storage.

A process learns last which sandbox it is. So one is brought that far before it is requested: the *next* one. It belongs
to no sandbox, holds no tenant's data, and waits on a socket whose other end only the keeper has: it ends when the
keeper does. ADR 15 has the reasons.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import shutil
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from warren.domain.errors import Error, QuotaExceeded
from warren.domain.values import Storage
from warren.engines.local.containment import plan
from warren.engines.local.keeper.records import NEXT, Record
from warren.engines.local.keeper.sandbox_process import SandboxProcess, translated_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from warren.domain.values import Limits
    from warren.engines.local.keeper.workspaces import Workspaces
    from warren.engines.local.keeper.zygotes import Zygote
    from warren.engines.local.linux.devices import DeviceControl, Needs

WORKSPACE_AFTER_S = 0.02
NEXT_AFTER_S = 0.1
"""Without another create, before the next process is forked: longer than most first calls, shorter than most pauses."""
RECENT = 8
"""Creates whose limits are compared to find the usual ones."""


class Kind(NamedTuple):
    """What a process forked ahead must match, beside the limits."""

    digest: str
    storage: Storage


class Prefork:
    """Makes the processes of the sandboxes of one data folder."""

    def __init__(self, folder: str, workspaces: Workspaces, layers: frozenset[str], *, debug: bool) -> None:
        self._folder = folder
        self._workspaces = workspaces
        self._layers = layers
        self._debug = debug
        self._next: dict[Kind, SandboxProcess] = {}
        """The process that is ready, of each kind."""
        self._making: dict[Kind, asyncio.Task[None]] = {}
        self._uid_indexes: dict[str, int] = {}
        # The next processes of an earlier keeper ended with it; their groups are removed with other strays.
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder, 0o700)

    @property
    def uid_indexes(self) -> frozenset[int]:
        """The uid indexes of processes that are no sandbox yet."""
        return frozenset(self._uid_indexes.values())

    async def begin(
        self,
        process: SandboxProcess,
        limits: Limits,
        *,
        ahead: bool = False,
        needs: Needs | None = None,
        control: DeviceControl | None = None,
    ) -> None:
        """Have a process forked and contained, with what it `needs` for GPUs. Returns before it is contained."""
        record = process.record
        process.spawn()
        base_uid = process.zygote.base_uid
        owner = os.getuid() if base_uid is None else base_uid + record.uid_index
        workspace, mount_fd = await self._workspaces.attach(record, limits, owner)
        request = self._request(limits, workspace)
        if needs is not None and control is not None:
            try:
                await process.confine(needs, control)
            except BaseException:
                if mount_fd >= 0:
                    os.close(mount_fd)
                raise
            request = dataclasses.replace(request, nodes=needs.paths)
        process.contain(request, mount_fd, ahead=ahead, debug=self._debug)

    def take(self, kind: Kind, limits: Limits) -> SandboxProcess | None:
        """Return the ready process for such a sandbox, if there is one; it is the caller's then."""
        process = self._next.get(kind)
        if process is None or not self._fits(process, limits) or not process.is_usable():
            return None
        del self._next[kind]
        self._uid_indexes.pop(process.record.id, None)
        return process

    def get_ready(self, zygote: Zygote, kind: Kind, limits: Limits, uid_index: int) -> None:
        """Make the next process of that kind, in the background."""
        if kind not in self._making:
            self._start(kind, self._make_next(zygote, kind, limits, uid_index))

    def is_ready(self, kind: Kind, limits: Limits) -> bool:
        """Whether the next process of that kind, with such limits, is ready or being made."""
        process = self._next.get(kind)
        return kind in self._making or (process is not None and self._fits(process, limits) and process.is_usable())

    def drop_image(self, digest: str) -> None:
        """End the ready processes of an image whose zygote is dead, in the background."""
        for kind in [one for one in self._next if one.digest == digest and one not in self._making]:
            self._start(kind, self._drop(kind))

    async def close(self, *, keep_folder: bool = False) -> None:
        """End all that are ready; the folder may be of another keeper by now."""
        making = list(self._making.values())
        for task in making:
            task.cancel()
        if making:
            await asyncio.wait(making)
        for kind in list(self._next):
            await self._drop(kind)
        if not keep_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _drop(self, kind: Kind) -> None:
        process = self._next.pop(kind, None)
        if process is not None:
            self._uid_indexes.pop(process.record.id, None)
            await process.undo()

    def _start(self, kind: Kind, work: Coroutine[object, object, None]) -> None:
        task = self._making[kind] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._making.pop(kind, None))

    async def _make_next(self, zygote: Zygote, kind: Kind, limits: Limits, uid_index: int) -> None:
        await self._drop(kind)
        name = f"next-{secrets.token_hex(6)}"
        folder = os.path.join(self._folder, name)
        record = Record(id=name, folder=folder, image=kind.digest, uid_index=uid_index, storage=kind.storage)
        self._uid_indexes[name] = uid_index
        process = SandboxProcess(record, limits, zygote)
        try:
            with translated_errors(zygote):
                os.mkdir(record.folder, 0o700)
                await self.begin(process, limits, ahead=True)
                await process.wait_spawned()
                await process.wait_contained()
                record.save(state=NEXT)
        except BaseException as error:
            self._uid_indexes.pop(name, None)
            await process.undo()
            # The next create forks its own process, and reports the error.
            if not isinstance(error, Error):
                raise
        else:
            self._next[kind] = process

    def _fits(self, process: SandboxProcess, limits: Limits) -> bool:
        # Not by the plan: it tells that a workspace is attached, and not how large it is.
        return process.request is not None and process.request == self._request(limits, process.request.workspace)

    def _request(self, limits: Limits, workspace: str) -> plan.SandboxRequest:
        return plan.SandboxRequest(
            memory_bytes=limits.memory_bytes,
            open_files=limits.open_files,
            pids=limits.pids,
            workspace=workspace,
            disk_bytes=limits.disk_bytes,
            disk_inodes=limits.disk_inodes,
            tmp_bytes=limits.tmp_bytes,
            layers=self._layers,
        )


class PreforkTimer:
    """Begins the next process of a kind once no create has come for a while; a burst of creates delays it."""

    def __init__(
        self,
        prefork: Prefork,
        workspaces: Workspaces,
        find_zygote: Callable[[str], Zygote | None],
        find_uid_index: Callable[[], int],
        is_booting: Callable[[], bool],
    ) -> None:
        self._prefork = prefork
        self._workspaces = workspaces
        self._find_zygote = find_zygote
        self._find_uid_index = find_uid_index
        self._is_booting = is_booting
        self._timers: dict[Kind, asyncio.TimerHandle] = {}
        self._recent: dict[Kind, deque[Limits]] = {}
        """Limits of the last creates of each kind."""
        self._created_at = 0.0
        self._is_closed = False

    def restart(self, kind: Kind, limits: Limits) -> None:
        """Plan the next process after a create of that kind."""
        loop = asyncio.get_running_loop()
        recent = self._recent.setdefault(kind, deque(maxlen=RECENT))
        recent.append(limits)
        # The most usual ones: a caller that names others each time takes nothing from the rest.
        limits = max(reversed(recent), key=recent.count)
        if kind.storage == Storage.EPHEMERAL:
            # After the answer, while no client waits: attaching a disk takes longer than anything else here.
            loop.call_later(WORKSPACE_AFTER_S, self._make_workspace, limits)
        self._created_at = loop.time()
        before = self._timers.get(kind)
        if before is not None:
            before.cancel()
        self._set(kind, limits)

    def close(self) -> None:
        """Begin nothing more."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()

    def _set(self, kind: Kind, limits: Limits) -> None:
        loop = asyncio.get_running_loop()
        self._timers[kind] = loop.call_later(NEXT_AFTER_S, self._begin, kind, limits, self._created_at)

    def _begin(self, kind: Kind, limits: Limits, created_at: float) -> None:
        if self._created_at != created_at:
            # Another create came: wait until that one is served.
            self._set(kind, limits)
            return
        zygote = self._find_zygote(kind.digest)
        if self._is_closed or zygote is None or self._prefork.is_ready(kind, limits):
            return
        # Without a free uid there is nothing to make ahead; the next create reports it.
        with contextlib.suppress(QuotaExceeded):
            self._prefork.get_ready(zygote, kind, limits, self._find_uid_index())

    def _make_workspace(self, limits: Limits) -> None:
        if not self._is_closed and not self._is_booting():
            self._workspaces.get_ready(limits)
