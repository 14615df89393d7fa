"""The keeper's side of a zygote: start it in its own root, or adopt it, and request processes from it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.domain.errors import StartFailed
from warren.engines import procfs, state_files, unix_sockets
from warren.engines.local.containment import plan
from warren.engines.local.keeper.zygote_launch import Launch, become_zygote
from warren.engines.local.linux import fd_passing
from warren.engines.local.linux.cgroup import GroupLimits
from warren.guest.wire.frames import ProtocolError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from warren.engines.local.linux.cgroup import Group
    from warren.engines.local.linux.cgroups import Cgroups
    from warren.guest.wire.frames import Header

START_TIMEOUT_S = 120.0
"""Importing a data stack for the first time, from a cold disk, may take long."""
_WAITING_LIMITS = GroupLimits(memory_bytes=4 << 30, cpus=64, pids=4096)
"""Of a group in which only the zygote waits; the sandbox's own limits are set when it is claimed."""


@dataclass(frozen=True)
class Spawned:
    """A process that waits for its containment plan."""

    pid: int
    pidfd: int


class ZygoteGone(StartFailed):
    """The zygote ended before it answered; the next request for its image starts another."""


class Zygote:
    """One image's zygote."""

    def __init__(self, folder: str, cgroups: Cgroups) -> None:
        self._folder = folder
        self._state_file = os.path.join(folder, "zygote.json")
        self._log = os.path.join(folder, "zygote.log")
        self._cgroups = cgroups
        self._receiver: fd_passing.Receiver | None = None
        self._socket: socket.socket | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[Spawned]] = {}
        self._next: Group | None = None
        self._has_parked = asyncio.Event()
        self._is_over = False
        self._pid = 0
        self.on_end: Callable[[], None] | None = None
        """Called once it is found dead."""

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests."""
        return self._reader is not None and not self._is_over

    @property
    def waiting_in(self) -> str:
        """Name of the control group in which it waits."""
        return self._next.name if self._next is not None else ""

    async def adopt(self, version: str) -> bool:
        """Connect to the zygote of an earlier keeper, if it is of our version; otherwise end it."""
        self._pid = int(state_files.load(self._state_file).get("pid", 0))
        try:
            await self._connect(version)
        except StartFailed:
            await self.close(kill=True)
            return False
        self._serve()
        # WHY: the group in which it waits for the earlier keeper must not be removed before it has left it.
        await self._has_parked.wait()
        return True

    async def start(self, launch: Launch) -> None:
        """Start one. Raises StartFailed with the last line of its log."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._start(launch)
        try:
            await self._connect(launch.version)
        except BaseException:
            await self.close(kill=True)
            raise
        self._serve()

    def spawn(self, sandbox_id: str, outside_id: int, boot: socket.socket) -> tuple[Group, asyncio.Future[Spawned]]:
        """Request one process; returns its control group at once, and a future of the process.

        The group has no limits yet. The process does nothing before it gets its containment plan.
        """
        if self._socket is None:
            raise StartFailed("the zygote of this image is not running")
        group, self._next = self._next or self._park(), None
        directory = group.directory_fd()
        message = {"t": "spawn", "sandbox": sandbox_id, "inside": plan.SANDBOX_ID, "outside": outside_id}
        message["cgroup"] = directory is not None
        passed = [boot.fileno(), *(() if directory is None else (directory,))]
        spawned: asyncio.Future[Spawned] = asyncio.get_running_loop().create_future()
        try:
            self._send(message, passed)
        except ZygoteGone:
            group.remove()
            raise
        finally:
            if directory is not None:
                os.close(directory)
        self._waiting[sandbox_id] = spawned
        return group, spawned

    def get_ready(self) -> None:
        """Park the zygote for the next request, while no client waits."""
        if self._next is None and self.is_ready:
            with contextlib.suppress(ZygoteGone):
                self._next = self._park()

    async def close(self, *, kill: bool) -> None:
        """Disconnect from it; with `kill` also end it. The sandboxes it made run on."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        if self._receiver is not None:
            self._receiver.close()
        if kill and procfs.is_alive(self._pid, int(state_files.load(self._state_file).get("start_time", 0))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        if kill and self._next is not None:
            self._next.kill()
            self._next.remove()

    def _park(self) -> Group:
        """Make it wait inside the control group of the next sandbox; see zygote.py for why."""
        group = self._cgroups.make(f"g{secrets.token_hex(6)}", _WAITING_LIMITS)
        procs = group.procs_fds()
        try:
            self._send({"t": "park", "count": len(procs)}, procs)
        except ZygoteGone:
            group.remove()
            raise
        finally:
            for fd in procs:
                os.close(fd)
        return group

    def _send(self, message: Header, passed: list[int]) -> None:
        assert self._socket is not None
        try:
            fd_passing.send(self._socket, message, passed)
        except (BrokenPipeError, ConnectionResetError) as error:
            self.give_up()
            raise ZygoteGone("the zygote of this image ended") from error

    def _serve(self) -> None:
        self._reader = asyncio.create_task(self._read())
        self.get_ready()

    async def _connect(self, version: str) -> None:
        try:
            sock = unix_sockets.connect_socket(os.path.join(self._folder, "control.sock"))
        except OSError as error:
            raise StartFailed("no zygote is running for this image") from error
        receiver = fd_passing.Receiver(sock)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                ready = await receiver.receive_async()
        except (EOFError, OSError, ProtocolError, TimeoutError) as error:
            receiver.close()
            raise StartFailed(
                f"the zygote of this image ended before it was ready: {state_files.last_words(self._log)}"
            ) from error
        if ready.get("error") or ready.get("version") != version:
            receiver.close()
            raise StartFailed(str(ready.get("error") or "the zygote is of another version"))
        self._socket, self._receiver = sock, receiver

    async def _read(self) -> None:
        assert self._receiver is not None
        try:
            while True:
                reply = await self._receiver.receive_async()
                self._has_parked.set()
                pidfd = self._receiver.take_fd() if reply["t"] == "spawned" else -1
                waiting = self._waiting.pop(str(reply.get("sandbox")), None)
                if pidfd >= 0:
                    self._deliver(pidfd, waiting)
                elif reply["t"] == "failed" and waiting is not None and not waiting.done():
                    waiting.set_exception(StartFailed(f"the zygote could not make a sandbox: {reply.get('error')}"))
        except (EOFError, OSError, ProtocolError):
            self.give_up()

    def _deliver(self, pidfd: int, waiting: asyncio.Future[Spawned] | None) -> None:
        """Resolve the request of a process. Raises ProtocolError when it is no child of the zygote.

        WHY: the zygote runs image code, and the keeper will kill what it names, with the rights of the host's root.
        """
        process = procfs.read(procfs.pid_of(pidfd))
        if process is not None and process.parent == self._pid and waiting is not None and not waiting.done():
            waiting.set_result(Spawned(process.pid, pidfd))
            return
        os.close(pidfd)
        if waiting is not None and not waiting.done():
            waiting.set_exception(StartFailed("the process of the sandbox ended at once, or is none of the zygote's"))
        if process is not None and process.parent != self._pid:
            raise ProtocolError("the zygote named a process that is not its child")

    def give_up(self) -> None:
        """Take it for dead: fail all pending requests."""
        self._is_over = True
        self._has_parked.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ZygoteGone("the zygote of this image ended"))
        self._waiting.clear()
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()

    def _start(self, launch: Launch) -> None:
        listener = unix_sockets.listen(os.path.join(self._folder, "control.sock"))
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        staging = os.path.join(self._folder, "root")
        os.makedirs(staging, exist_ok=True)
        pid = os.fork()
        if pid == 0:
            become_zygote(launch, listener.fileno(), log, staging)
        listener.close()
        os.close(log)
        self._pid = pid
        state_files.save(self._state_file, {"pid": pid, "start_time": procfs.start_time(pid)})
