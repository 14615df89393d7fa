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
    size: tuple[int, int]
    """Bytes and inodes."""


class Workspaces:
    """Makes and attaches the workspaces of one data folder."""

    def __init__(self, templates: str, *, as_images: bool, can_mount: bool) -> None:
        self._templates = templates
        self.as_images = as_images
        self._can_mount = can_mount
        self._devices_before = loop_devices.numbers()
        self._spare: _Spare | None = None
        os.makedirs(templates, mode=0o700, exist_ok=True)
        # Spares of an earlier keeper that was killed.
        for path in glob.glob(os.path.join(glob.escape(templates), "spare-*.ext4")):
            os.unlink(path)

    def close(self) -> None:
        """Remove the spare image, and unused loop devices that this keeper added."""
        if self._spare is not None:
            os.close(self._spare.mount_fd)
            # The data folder may have been deleted.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._spare.path)
            self._spare = None
        if self.as_images:
            loop_devices.remove_unused(self._devices_before)

    def get_ready(self, limits: Limits) -> None:
        """Make and attach an image for the next ephemeral sandbox with these limits, while no client waits."""
        if not self.as_images or self._spare is not None:
            return
        image = disk_image.DiskImage(os.path.join(self._templates, f"spare-{secrets.token_hex(6)}.ext4"))
        # The create that needs the space reports a full disk.
        with contextlib.suppress(OSError):
            image.create(self._template(limits, journal=False))
            try:
                self._spare = _Spare(image.path, image.attach(0, 0), (limits.disk_bytes, limits.disk_inodes))
            except OSError:
                os.unlink(image.path)
                raise

    def _take_spare(self, record: Record, limits: Limits, owner: int) -> int | None:
        spare = self._spare
        if spare is None or record.storage != Storage.EPHEMERAL or os.path.exists(record.disk):
            return None
        if spare.size != (limits.disk_bytes, limits.disk_inodes):
            return None
        self._spare = None
        os.rename(spare.path, record.disk)
        disk_image.set_owner(spare.mount_fd, owner, owner)
        return spare.mount_fd

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
            await _wait_until_detached(record.disk)
            image.check()
        else:
            image.create(self._template(limits, journal=record.storage == Storage.PERSISTENT))
        try:
            return image.attach(owner, owner)
        except OSError as error:
            raise StartFailed(f"the workspace cannot be attached: {error}") from error

    def _template(self, limits: Limits, *, journal: bool) -> str:
        name = f"{limits.disk_bytes}-{limits.disk_inodes}{'-journal' if journal else ''}.ext4"
        path = os.path.join(self._templates, name)
        if not os.path.exists(path):
            disk_image.make_template(path, limits.disk_bytes, limits.disk_inodes, journal)
        return path


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
    # WHY not in a thread: the keeper forks zygotes, and a lock that a thread holds stays locked in them for ever.
    pid = os.fork()
    if pid == 0:
        try:
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
