"""How a sandbox's process comes to be: copied from the zygote, contained, and then told which sandbox it is.

What a sandbox is called, and what is particular to it, is told last. So one process an image, and kind of storage, is
brought that far before anybody asks: the *next* one. It belongs to nobody, holds nothing of anybody, and waits on a
socket whose other end only the keeper has: it ends when the keeper does. ADR 15 has the reasons.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import select
import shutil
import signal
import socket
from typing import TYPE_CHECKING, NamedTuple

from warren.domain.errors import EngineUnavailable, Error, StartFailed
from warren.engines import procfs, unix_sockets
from warren.engines.local.containment import plan
from warren.engines.local.keeper.records import NEXT, Record
from warren.engines.local.keeper.zygotes import Newborn, Zygote, ZygoteGone
from warren.engines.local.linux import devices, fd_passing
from warren.engines.local.linux.cgroups import GroupLimits
from warren.guest.wire.frames import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from warren.domain.values import Limits, Storage
    from warren.engines.local.keeper.workspaces import Workspaces
    from warren.engines.local.linux.cgroups import Group
    from warren.engines.local.linux.devices import DeviceControl, Handed, Needs
    from warren.guest.wire.frames import Header

BOOT_TIMEOUT_S = 20.0
SPAWN_TIMEOUT_S = 60.0
"""Many may be asked for at once, and the zygote makes them one after another."""
OVERHEAD_BYTES = 24 << 20
"""Memory of the agent and the nursery, on top of what a sandbox was promised."""


class Kind(NamedTuple):
    """What a sandbox must be like for the one that is ready to do, beside its limits."""

    digest: str
    storage: Storage


class Birth:
    """One process on its way to be a sandbox."""

    def __init__(self, record: Record, limits: Limits, zygote: Zygote) -> None:
        self.record = record
        self.zygote = zygote
        self.request: plan.SandboxRequest | None = None
        """All that its containment and its workspace depend on."""
        self.newborn: Newborn | None = None
        self.handed: Handed | None = None
        """Device nodes that it gets."""
        self._limits = group_limits(limits)
        self._group: Group | None = None
        self._coming: asyncio.Future[Newborn] | None = None
        self._socket, self._theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._receiver = fd_passing.Receiver(self._socket)

    def spawn(self, outside_id: int) -> None:
        """Have the zygote make the process, in a control group with its limits."""
        with self._theirs:
            self._group, self._coming = self.zygote.spawn(self.record.id, outside_id, self._theirs)
        self.record.group = self._group.name
        # From here on the zygote works at the same time. What we send waits for the process in its socket.
        self._group.resize(self._limits)

    async def confine(self, needs: Needs, control: DeviceControl) -> None:
        """Have it in a group that opens no devices but its own, before it has any of them."""
        self.handed = devices.hand_over(needs)
        newborn = await self.wait_born()
        try:
            self.record.device_group = control.confine(newborn.pid, self.record.group, self.handed.rules)
        except OSError:
            # Nobody watches it yet. Without being told how to contain itself it ends when our socket does.
            os.close(newborn.pidfd)
            self.newborn = None
            raise

    def contain(self, request: plan.SandboxRequest, mount_fd: int, *, ahead: bool, debug: bool) -> None:
        """Tell it how to contain itself, and hand it what it needs for that and afterwards."""
        assert self._group is not None
        self.request = request
        steps = [(step.act, dict(step.args)) for step in plan.build_sandbox_plan(request)]
        facts = self._group.facts()
        handed, self.handed = self.handed, None
        nodes = () if handed is None else handed.fds
        passed = [*facts.values(), *([mount_fd] if mount_fd >= 0 else []), *nodes]
        message: Header = {"t": "contain", "plan": steps, "facts": list(facts)}
        message |= {"mount": mount_fd >= 0, "devices": len(nodes), "ahead": ahead, "debug": debug}
        try:
            with unix_sockets.listen(self.record.socket) as listener:
                fd_passing.send(self._socket, message, [listener.fileno(), *passed])
        finally:
            for fd in passed:
                os.close(fd)

    def name(self, boot: Header) -> None:
        """Tell it which sandbox it is: it is that from then on, whatever becomes of us."""
        fd_passing.send(self._socket, {"t": "be", "boot": boot})

    async def wait_born(self) -> Newborn:
        """Wait until the process is there."""
        assert self._coming is not None
        async with asyncio.timeout(SPAWN_TIMEOUT_S):
            self.newborn = await self._coming
        self.record.pid = self.newborn.pid
        self.record.start_time = procfs.start_time(self.newborn.pid)
        return self.newborn

    async def wait_contained(self) -> None:
        """Wait until it says that every step was taken. Raises EngineUnavailable when one could not be."""
        async with asyncio.timeout(BOOT_TIMEOUT_S):
            answer = await self._receiver.receive_async()
        if answer["t"] != "ready":
            raise EngineUnavailable(f"a layer of isolation could not be applied: {answer.get('message')}")

    def resize(self, limits: Limits) -> None:
        """Give it the limits of the sandbox that it will be, if they are others."""
        assert self._group is not None
        wanted = group_limits(limits)
        if wanted != self._limits:
            self._group.resize(wanted)

    def is_usable(self) -> bool:
        """Whether the process and the zygote that it was copied from are still there."""
        if self.newborn is None or not self.zygote.is_ready:
            return False
        ended = select.poll()
        ended.register(self.newborn.pidfd, select.POLLIN)
        return not ended.poll(0)

    def close(self) -> None:
        """Let go of it. A process that has not been told who it is ends."""
        self._theirs.close()
        self._receiver.close()
        if self.handed is not None:
            self.handed.close()
            self.handed = None
        if self._coming is not None:
            self._coming.cancel()

    async def undo(self) -> None:
        """End it, and remove what was made for it."""
        self.close()
        if self.newborn is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.newborn.pidfd, signal.SIGKILL)
            await _wait_readable(self.newborn.pidfd)
            os.close(self.newborn.pidfd)
            self.newborn = None
        if self._group is not None:
            self._group.kill()
            self._group.remove()
        self.record.erase()


class Prefork:
    """Makes the processes of the sandboxes of one data folder."""

    def __init__(
        self, folder: str, workspaces: Workspaces, layers: frozenset[str], base_uid: int | None, *, debug: bool
    ) -> None:
        self._folder = folder
        self._workspaces = workspaces
        self._layers = layers
        self._base_uid = base_uid
        self._debug = debug
        self._next: dict[Kind, Birth] = {}
        """The one that is ready of each."""
        self._making: dict[Kind, asyncio.Task[None]] = {}
        self._uid_indexes: dict[str, int] = {}
        # What an earlier keeper had ready; its processes ended with it, its groups are removed with other strays.
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder, 0o700)

    @property
    def uid_indexes(self) -> frozenset[int]:
        """Those that are taken by processes that are no sandbox yet."""
        return frozenset(self._uid_indexes.values())

    async def begin(
        self,
        birth: Birth,
        limits: Limits,
        *,
        ahead: bool = False,
        needs: Needs | None = None,
        control: DeviceControl | None = None,
    ) -> None:
        """Have a process made and contain itself, with what it `needs` for GPUs. Returns before it has done so."""
        record = birth.record
        try:
            birth.spawn(0 if self._base_uid is None else record.uid_index)
            owner = os.getuid() if self._base_uid is None else self._base_uid + record.uid_index
            workspace, mount_fd = await self._workspaces.attach(record, limits, owner)
            request = self._request(limits, workspace)
            if needs is not None and control is not None:
                try:
                    await birth.confine(needs, control)
                except BaseException:
                    if mount_fd >= 0:
                        os.close(mount_fd)
                    raise
                request = dataclasses.replace(request, nodes=needs.paths)
            birth.contain(request, mount_fd, ahead=ahead, debug=self._debug)
        finally:
            # It still waits in the group of this one.
            birth.zygote.get_ready()

    def take(self, kind: Kind, limits: Limits) -> Birth | None:
        """Return the process that is ready for such a sandbox, if there is one; it is the caller's then."""
        birth = self._next.get(kind)
        if birth is None or not self._fits(birth, limits) or not birth.is_usable():
            return None
        del self._next[kind]
        self._uid_indexes.pop(birth.record.id, None)
        return birth

    def get_ready(self, zygote: Zygote, kind: Kind, limits: Limits, uid_index: int) -> None:
        """Make a process for the next sandbox of that kind like the last; in the background."""
        if kind not in self._making:
            self._start(kind, self._make_next(zygote, kind, limits, uid_index))

    def is_ready(self, kind: Kind, limits: Limits) -> bool:
        """Whether the next sandbox of that kind, with such limits, is ready or being made."""
        birth = self._next.get(kind)
        return kind in self._making or (birth is not None and self._fits(birth, limits) and birth.is_usable())

    def forsake(self, digest: str) -> None:
        """End those of an image that are ready, in the background: its zygote is dead."""
        for kind in [one for one in self._next if one.digest == digest and one not in self._making]:
            self._start(kind, self._drop(kind))

    async def _drop(self, kind: Kind) -> None:
        birth = self._next.pop(kind, None)
        if birth is not None:
            self._uid_indexes.pop(birth.record.id, None)
            await birth.undo()

    async def close(self) -> None:
        """End all that are ready."""
        making = list(self._making.values())
        for task in making:
            task.cancel()
        if making:
            await asyncio.wait(making)
        for kind in list(self._next):
            await self._drop(kind)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, kind: Kind, work: Coroutine[object, object, None]) -> None:
        task = self._making[kind] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._making.pop(kind, None))

    async def _make_next(self, zygote: Zygote, kind: Kind, limits: Limits, uid_index: int) -> None:
        await self._drop(kind)
        name = f"next-{secrets.token_hex(6)}"
        folder = os.path.join(self._folder, name)
        record = Record(id=name, folder=folder, image=kind.digest, uid_index=uid_index, storage=kind.storage)
        self._uid_indexes[name] = uid_index
        birth = Birth(record, limits, zygote)
        try:
            with explained(zygote):
                os.mkdir(record.folder, 0o700)
                await self.begin(birth, limits, ahead=True)
                await birth.wait_born()
                await birth.wait_contained()
                record.save(state=NEXT)
        except BaseException as error:
            self._uid_indexes.pop(name, None)
            await birth.undo()
            # Whoever asks for a sandbox goes the long way, and is told what is wrong.
            if not isinstance(error, Error):
                raise
        else:
            self._next[kind] = birth

    def _fits(self, birth: Birth, limits: Limits) -> bool:
        # Not by the plan: it says that a workspace is attached, and not how large that is.
        return birth.request is not None and birth.request == self._request(limits, birth.request.workspace)

    def _request(self, limits: Limits, workspace: str) -> plan.SandboxRequest:
        return plan.SandboxRequest(
            memory_bytes=limits.memory_bytes,
            open_files=limits.open_files,
            pids=limits.pids,
            workspace=workspace,
            disk_bytes=limits.disk_bytes,
            disk_inodes=limits.disk_inodes,
            layers=self._layers,
        )


@contextlib.contextmanager
def explained(zygote: Zygote) -> Iterator[None]:
    """Raise what can go wrong while a process comes to be as what it means."""
    try:
        yield
    except BrokenPipeError as error:
        # The process that should have taken our message is gone, most likely with the zygote.
        zygote.give_up()
        raise ZygoteGone("the zygote of this image ended") from error
    except (EOFError, OSError, ProtocolError, TimeoutError) as error:
        raise StartFailed(f"the sandbox did not start: {str(error) or type(error).__name__}") from error


def group_limits(limits: Limits) -> GroupLimits:
    """Return what the processes of a sandbox with these limits may use together."""
    # WHY: the kernel's checkpoints are ours, not the program's: a program that fits its limit is not killed by them.
    # Beside those that rollback can reach there is one of the newest state, which a crash falls back on.
    copies = limits.checkpoint_bytes * (limits.checkpoints + 1 if limits.checkpoints else 0)
    return GroupLimits(memory_bytes=limits.memory_bytes + copies + OVERHEAD_BYTES, cpus=limits.cpus, pids=limits.pids)


async def _wait_readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)
