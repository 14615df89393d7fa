"""Flush: writes a workspace to the host's disk when its sandbox is stopped, and reports a failure.

The kernel also does so when the last process is gone, but reports no errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil

from warren.engines.local.linux import syscalls

_DEADLINE_S = 30.0
_LITTLE = 1 << 20
_UNKNOWN = 255


class Flush:
    """A workspace that is held open while its processes end."""

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
        why = f"within {_DEADLINE_S:g} seconds" if error is None else f"({os.strerror(error)})"
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
        async with asyncio.timeout(_DEADLINE_S):
            return await done
    except TimeoutError:
        return None
