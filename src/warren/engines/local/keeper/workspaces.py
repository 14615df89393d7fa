"""Workspaces: a disk image for each as root, flushed at its stop; rootless in memory, or a folder where allowed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import glob
import os
import secrets
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.domain.errors import StartFailed
from warren.domain.values import Storage
from warren.engines.local.keeper.templates import Size, Templates
from warren.engines.local.keeper.threads import Threads
from warren.engines.local.linux import disk_image, loop_devices, syscalls

if TYPE_CHECKING:
    from warren.domain.values import Limits
    from warren.engines.local.keeper.records import Record

_DETACH_TIMEOUT_S = 10.0
_FLUSH_TIMEOUT_S = 30.0
_LITTLE = 1 << 20
_UNKNOWN = 255


@dataclass(frozen=True, slots=True)
class _Spare:
    """An attached image for the next sandbox."""

    path: str
    mount_fd: int
    size: Size

    def remove(self) -> None:
        """Detach and remove it."""
        os.close(self.mount_fd)
        # The data folder may have been deleted.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


class Workspaces:
    """Makes and attaches the workspaces of one data folder. All that waits for a disk is done in threads."""

    def __init__(self, templates: str, *, as_images: bool, can_mount: bool) -> None:
        self._folder = templates
        self._threads = Threads()
        self._templates = Templates(templates, self._threads)
        self.as_images = as_images
        self._can_mount = can_mount
        self._devices_before = loop_devices.numbers()
        self._spare: _Spare | None = None
        self._making_spare: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Remove the spare image, and unused loop devices that this keeper added."""
        if self._making_spare is not None:
            self._making_spare.cancel()
            await asyncio.wait([self._making_spare])
        if self._spare is not None:
            self._spare.remove()
            self._spare = None
        if self.as_images:
            loop_devices.remove_unused(self._devices_before)

    def get_ready(self, limits: Limits) -> None:
        """Make and attach an image for the next ephemeral sandbox with these limits, in the background."""
        size = Size.of(limits)
        if self.as_images and self._making_spare is None and (self._spare is None or self._spare.size != size):
            self._making_spare = asyncio.create_task(self._make_spare(size))

    async def _make_spare(self, size: Size) -> None:
        image = disk_image.DiskImage(os.path.join(self._folder, f"spare-{secrets.token_hex(6)}.ext4"))

        def remove(mount_fd: int) -> None:
            _Spare(image.path, mount_fd, size).remove()

        try:
            async with self._templates.use(size, journal=False) as template:
                made = await self._threads.run_quick(lambda: _make(image, template, 0), remove)
            before, self._spare = self._spare, _Spare(image.path, made, size)
            if before is not None:
                await self._threads.run_quick(before.remove)
        except (OSError, RuntimeError):
            """The create that needs the space reports a full disk."""
        finally:
            self._making_spare = None

    def _take_spare(self, record: Record, limits: Limits, owner: int) -> int | None:
        spare = self._spare
        if spare is None or record.storage != Storage.EPHEMERAL or os.path.exists(record.disk):
            return None
        if spare.size != Size.of(limits):
            return None
        self._spare = None
        os.rename(spare.path, record.disk)
        disk_image.set_owner(spare.mount_fd, owner, owner)
        return spare.mount_fd

    async def prepare(self, record: Record, limits: Limits) -> None:
        """Do what may take seconds, before the sandbox holds anything that others wait for."""
        if not self.as_images:
            return
        if os.path.exists(record.disk):
            await self._check(disk_image.DiskImage(record.disk))
            return
        async with self._templates.use(Size.of(limits), journal=record.storage == Storage.PERSISTENT):
            """It is there, and the next to be copied."""

    async def attach(self, record: Record, limits: Limits, owner: int) -> tuple[str, int]:
        """Make it if it is missing; returns its kind for plan.py, and the detached mount or -1."""
        if self.as_images:
            return "attach", await self._attach_image(record, limits, owner)
        if record.storage == Storage.EPHEMERAL:
            return "tmpfs", -1
        os.makedirs(record.directory, mode=0o755, exist_ok=True)
        if not self._can_mount:
            return f"{record.id}/workspace", -1
        os.chown(record.directory, owner, owner)
        tree = syscalls.open_tree(syscalls.AT_FDCWD, record.directory, syscalls.OPEN_TREE_CLONE)
        syscalls.mount_setattr(tree, "", syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV)
        return "attach", tree

    async def _attach_image(self, record: Record, limits: Limits, owner: int) -> int:
        spare = self._take_spare(record, limits, owner)
        if spare is not None:
            return spare
        image = disk_image.DiskImage(record.disk)
        if os.path.exists(record.disk):
            return await self._attach_again(image, owner)
        journal = record.storage == Storage.PERSISTENT
        async with self._templates.use(Size.of(limits), journal=journal) as template:
            return await self._threads.run_quick(lambda: _make(image, template, owner), os.close)

    async def _attach_again(self, image: disk_image.DiskImage, owner: int) -> int:
        await self._check(image)
        mount_fd = await self._threads.run_quick(lambda: _attach(image), os.close)
        run = self._threads.run_slow if disk_image.has_another_owner(mount_fd, owner) else self._threads.run_quick
        try:
            await run(lambda: disk_image.set_owner(mount_fd, owner, owner))
        except BaseException:
            os.close(mount_fd)
            raise
        return mount_fd

    async def _check(self, image: disk_image.DiskImage) -> None:
        await _wait_until_detached(image.path)
        if not image.is_clean():
            await self._threads.run_slow(image.repair)


def _make(image: disk_image.DiskImage, template: str, owner: int) -> int:
    image.create(template)
    with contextlib.ExitStack() as undo:
        undo.callback(os.unlink, image.path)
        mount_fd = _attach(image)
        undo.callback(os.close, mount_fd)
        disk_image.set_owner(mount_fd, owner, owner)
        undo.pop_all()
    return mount_fd


def _attach(image: disk_image.DiskImage) -> int:
    try:
        return image.attach()
    except OSError as error:
        raise StartFailed(f"the workspace cannot be attached: {error}") from error


async def _wait_until_detached(path: str) -> None:
    """Wait until the kernel has released a disk image. Two mounts of one image would destroy it."""
    wanted = os.path.realpath(path)
    async with asyncio.timeout(_DETACH_TIMEOUT_S):
        while any(_backing(file) == wanted for file in glob.glob("/sys/block/loop*/loop/backing_file")):
            await asyncio.sleep(0.005)


def _backing(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read().rstrip("\n")
    except OSError:
        return ""


class Flush:
    """A workspace that is held open while its processes end, and then written to the host's disk.

    The kernel also does so when the last process is gone, but reports no errors.
    """

    def __init__(self, pid: int, workspace: str, host_folder: str) -> None:
        """Open the workspace of a running process; one that has ended has none."""
        self._host_folder = host_folder
        self._fd = -1
        with contextlib.suppress(OSError):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(f"/proc/{pid}/root{workspace}", flags)

    async def finish(self) -> str | None:
        """Write everything to disk and close it. Returns a caveat about the workspace, or None."""
        if self._fd < 0:
            return None
        try:
            error = await _sync_apart(self._fd)
        finally:
            os.close(self._fd)
            self._fd = -1
        if error == 0:
            return None
        why = f"within {_FLUSH_TIMEOUT_S:g} seconds" if error is None else f"({os.strerror(error)})"
        if error is not None and shutil.disk_usage(self._host_folder).free < _LITTLE:
            why = "because the host's disk is full"
        return f"not all that was written to its workspace could be kept {why}: look at what was written last"


async def _sync_apart(fd: int) -> int | None:
    """Flush a file system in a child, since it may take long. Returns the error, 0, or None if it took too long."""
    # WHY not in a thread: a disk that does not answer would hold it for ever.
    pid = os.fork()
    if pid == 0:
        try:
            # Those of other workspaces: they could not be detached meanwhile.
            fd = os.dup2(fd, 3)
            syscalls.close_from(4)
            syscalls.syncfs(fd)
            os._exit(0)
        except OSError as exc:
            os._exit(exc.errno or errno.EIO)
        finally:
            os._exit(_UNKNOWN)
    pidfd = os.pidfd_open(pid)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[int] = loop.create_future()

    def reap() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        if not done.done():
            done.set_result(os.waitstatus_to_exitcode(status))

    loop.add_reader(pidfd, reap)
    try:
        async with asyncio.timeout(_FLUSH_TIMEOUT_S):
            return await done
    except TimeoutError:
        return None
