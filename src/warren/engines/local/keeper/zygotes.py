"""The keeper's side of a zygote: start it in its own root, or adopt it, and request processes from it.

The zygote runs image code, so nothing here depends on its honesty: the keeper itself moves it between control groups,
checks what it delivers, and ends it when it is silent. A zygote that lies harms only sandboxes of its own image.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.domain.errors import StartFailed
from warren.engines import procfs, state_files, unix_sockets
from warren.engines.local.containment import plan
from warren.engines.local.keeper.zygote_launch import Launch, launch_zygote
from warren.engines.local.linux import fd_passing
from warren.engines.local.linux.cgroup import GroupLimits
from warren.guest.wire.frames import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.engines.local.linux.cgroup import Group
    from warren.engines.local.linux.cgroups import Cgroups
    from warren.guest.wire.frames import Header

START_TIMEOUT_S = 120.0
"""Importing a data stack for the first time, from a cold disk, may take long."""
ADOPT_TIMEOUT_S = 5.0
"""A zygote that has started answers at once."""
FORK_TIMEOUT_S = 10.0
"""A fork takes 2 ms."""
_WAITING_LIMITS = GroupLimits(memory_bytes=4 << 30, cpus=1, pids=4096)
"""Of a group in which only the zygote waits; the sandbox's own limits are set when it is claimed."""


@dataclass(frozen=True)
class Spawned:
    """A process that waits for its containment plan."""

    pid: int
    pidfd: int


@dataclass(frozen=True)
class _Request:
    """A process that was requested of the zygote."""

    sandbox_id: str
    outside_id: int
    boot_fd: int
    group: Group
    spawned: asyncio.Future[Spawned]
    answered: asyncio.Event


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
        self._tasks: list[asyncio.Task[None]] = []
        self._requests: asyncio.Queue[_Request] = asyncio.Queue()
        self._current: _Request | None = None
        """The one that the zygote works on."""
        self._next: Group | None = None
        """Made for the next request; the zygote waits in it, or moves there."""
        self._here: Group | None = None
        self._moving: asyncio.Future[None] | None = None
        self._is_over = False
        self._pid = 0
        self.base_uid: int | None = None
        """First of the host ids of its image; None when rootless."""
        self.on_end: Callable[[], None] | None = None
        """Called once it is found dead."""

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests."""
        return bool(self._tasks) and not self._is_over

    @property
    def waiting_in(self) -> str:
        """Name of the control group in which it waits."""
        return self._next.name if self._next is not None else ""

    async def adopt(self, version: str) -> bool:
        """Connect to the zygote of an earlier keeper, if it is of our version; otherwise end it."""
        state = state_files.load(self._state_file)
        self._pid, self.base_uid = int(state.get("pid", 0)), state.get("base_uid")
        try:
            await self._connect(version, ADOPT_TIMEOUT_S)
            self._next = self._make_group()
            # Before strays are removed: the group in which it waits for the earlier keeper is one of them.
            await self._move(self._next)
        except (StartFailed, OSError):
            await self.close(kill=True)
            return False
        self._begin()
        return True

    async def start(self, launch: Launch) -> None:
        """Start one. Raises StartFailed with the last line of its log."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self.base_uid = launch.base_uid
        self._next = self._make_group()
        try:
            await self._start(launch, self._next)
            await self._connect(launch.version, START_TIMEOUT_S)
        except BaseException:
            await self.close(kill=True)
            raise
        self._begin()

    def spawn(self, sandbox_id: str, uid_index: int, boot: socket.socket) -> tuple[Group, asyncio.Future[Spawned]]:
        """Request one process; returns its control group at once, and a future of the process.

        The group has no limits yet. The process does nothing before it gets its containment plan.
        """
        if not self.is_ready:
            raise ZygoteGone("the zygote of this image is not running")
        group, self._next = self._next or self._make_group(), None
        request = _Request(
            sandbox_id=sandbox_id,
            outside_id=0 if self.base_uid is None else uid_index,
            boot_fd=os.dup(boot.fileno()),
            group=group,
            spawned=asyncio.get_running_loop().create_future(),
            answered=asyncio.Event(),
        )
        self._requests.put_nowait(request)
        return group, request.spawned

    async def close(self, *, kill: bool) -> None:
        """Disconnect from it; with `kill` also end it. The sandboxes it made run on."""
        for task in self._tasks:
            task.cancel()
        # A move goes on in its thread: the group can be removed once it is done.
        waited = [*self._tasks, *(() if self._moving is None else (self._moving,))]
        if waited:
            await asyncio.wait(waited)
        self.give_up()
        if self._receiver is not None:
            self._receiver.close()
        if kill and procfs.is_alive(self._pid, int(state_files.load(self._state_file).get("start_time", 0))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        if kill and self._next is not None:
            self._next.kill()
            self._next.remove()
            self._next = None

    def _begin(self) -> None:
        self._tasks = [asyncio.create_task(self._serve()), asyncio.create_task(self._read())]

    async def _serve(self) -> None:
        """Have the zygote fork for one request after another, each time in the control group of that sandbox.

        WHY: on cgroup v1 a process that joins a group later waits for an RCU grace period, about 17 ms on an idle
        machine. So the zygote waits inside the group of the next sandbox, and the child is forked there.
        """
        try:
            while True:
                if self._requests.empty():
                    if self._next is None:
                        self._next = self._make_group()
                    await self._move(self._next)
                self._current = request = await self._requests.get()
                try:
                    await self._move(request.group)
                    self._send(request)
                finally:
                    os.close(request.boot_fd)
                async with asyncio.timeout(FORK_TIMEOUT_S):
                    await request.answered.wait()
                self._current = None
        except TimeoutError:
            self._end(StartFailed(f"the zygote of this image has not answered for {FORK_TIMEOUT_S:g} seconds"))
        except OSError:
            self._end()

    async def _move(self, group: Group) -> None:
        if group is self._here:
            return
        self._here = None
        self._moving = asyncio.ensure_future(asyncio.to_thread(group.add, self._pid))
        await asyncio.shield(self._moving)
        self._here = group

    def _make_group(self) -> Group:
        return self._cgroups.make(f"g{secrets.token_hex(6)}", _WAITING_LIMITS)

    def _send(self, request: _Request) -> None:
        assert self._socket is not None
        message: Header = {"t": "spawn", "sandbox": request.sandbox_id}
        message |= {"inside": plan.SANDBOX_ID, "outside": request.outside_id}
        fd_passing.send(self._socket, message, [request.boot_fd])

    async def _read(self) -> None:
        assert self._receiver is not None
        try:
            while True:
                reply = await self._receiver.receive_async()
                request = self._find_request(reply)
                if reply.get("t") == "spawned":
                    self._deliver(self._receiver.take_fd(), request)
                elif not request.spawned.done():
                    error = StartFailed(f"the zygote could not make a sandbox: {str(reply.get('error'))[:2000]}")
                    request.spawned.set_exception(error)
                request.answered.set()
        except (EOFError, OSError, ProtocolError):
            self._end()

    def _find_request(self, reply: Header) -> _Request:
        """Return the request that is answered. Raises ProtocolError when there is none."""
        request = self._current
        if request is None or request.answered.is_set() or reply.get("sandbox") != request.sandbox_id:
            raise ProtocolError("the zygote answered what was not requested")
        return request

    def _deliver(self, pidfd: int, request: _Request) -> None:
        """Resolve a request. Raises ProtocolError when the process is no child of the zygote, or outside its group.

        WHY: the zygote runs image code, and the keeper will kill what it names, with the rights of the host's root.
        """
        process = procfs.read(procfs.pid_of(pidfd))
        if process is not None and (process.parent != self._pid or not request.group.has(process.pid)):
            os.close(pidfd)
            raise ProtocolError("the zygote named a process that it was not to make")
        if process is not None and not request.spawned.done():
            request.spawned.set_result(Spawned(process.pid, pidfd))
            return
        os.close(pidfd)
        if not request.spawned.done():
            request.spawned.set_exception(StartFailed("the process of the sandbox ended at once"))

    def _end(self, error: StartFailed | None = None) -> None:
        """End a zygote that does not do what it should, and fail its requests; the one it works on with `error`."""
        if error is not None and self._current is not None and not self._current.spawned.done():
            self._current.spawned.set_exception(error)
        if procfs.is_alive(self._pid, int(state_files.load(self._state_file).get("start_time", 0))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self.give_up()

    def give_up(self) -> None:
        """Take it for dead: fail all pending requests."""
        self._is_over = True
        pending = [] if self._current is None else [self._current]
        self._current = None
        while not self._requests.empty():
            request = self._requests.get_nowait()
            os.close(request.boot_fd)
            pending.append(request)
        for request in pending:
            if not request.spawned.done():
                request.spawned.set_exception(ZygoteGone("the zygote of this image ended"))
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()

    async def _connect(self, version: str, timeout_s: float) -> None:
        try:
            sock = unix_sockets.connect_socket(os.path.join(self._folder, "control.sock"))
        except OSError as error:
            raise StartFailed("no zygote is running for this image") from error
        receiver = fd_passing.Receiver(sock)
        try:
            async with asyncio.timeout(timeout_s):
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

    async def _start(self, launch: Launch, group: Group) -> None:
        """Launch the zygote, and let it run image code once it is in a control group."""
        staging = os.path.join(self._folder, "root")
        os.makedirs(staging, exist_ok=True)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        receiver = fd_passing.Receiver(ours)
        launcher = self._fork_launcher(launch, theirs, staging)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await receiver.receive_async()
            pidfd = receiver.take_fd()
            self._pid = procfs.pid_of(pidfd)
            os.close(pidfd)
            start_time = procfs.start_time(self._pid)
            state = {"pid": self._pid, "start_time": start_time, "base_uid": launch.base_uid}
            state_files.save(self._state_file, state)
            await self._move(group)
            fd_passing.send(ours, {"t": "go"})
        except (EOFError, OSError, ProtocolError, TimeoutError) as error:
            words = state_files.last_words(self._log)
            raise StartFailed(f"the zygote of this image ended before it was ready: {words}") from error
        finally:
            receiver.close()
            await asyncio.to_thread(os.waitpid, launcher, 0)

    def _fork_launcher(self, launch: Launch, theirs: socket.socket, staging: str) -> int:
        with theirs, unix_sockets.listen(os.path.join(self._folder, "control.sock")) as listener:
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                pid = os.fork()
                if pid == 0:
                    launch_zygote(launch, listener.fileno(), log, theirs.fileno(), staging)
                return pid
            finally:
                os.close(log)
