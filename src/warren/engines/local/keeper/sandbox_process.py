"""Process 1 of a sandbox, from the fork of the zygote until it is contained and assigned to a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
from typing import TYPE_CHECKING

from warren.domain.errors import EngineUnavailable, StartFailed
from warren.engines import procfs, unix_sockets
from warren.engines.local.containment import plan
from warren.engines.local.keeper.zygotes import Spawned, Zygote, ZygoteGone
from warren.engines.local.linux import devices, fd_passing
from warren.engines.local.linux.cgroup import GroupLimits
from warren.guest.wire.frames import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.domain.values import Limits
    from warren.engines.local.keeper.records import Record
    from warren.engines.local.linux.cgroup import Group
    from warren.engines.local.linux.devices import DeviceControl, Handed, Needs
    from warren.guest.wire.frames import Header

BOOT_TIMEOUT_S = 20.0
SPAWN_TIMEOUT_S = 60.0
"""Many may be requested at once, and the zygote forks them one after another."""
OVERHEAD_BYTES = 24 << 20
"""Memory of the agent and the forkserver, on top of the limit of a sandbox."""


class SandboxProcess:
    """One process that becomes a sandbox."""

    def __init__(self, record: Record, limits: Limits, zygote: Zygote) -> None:
        self.record = record
        self.zygote = zygote
        self.request: plan.SandboxRequest | None = None
        """All that its containment and its workspace depend on."""
        self.spawned: Spawned | None = None
        self.handed: Handed | None = None
        """Device nodes that it gets."""
        self._limits = group_limits(limits)
        self._group: Group | None = None
        self._coming: asyncio.Future[Spawned] | None = None
        self._socket, self._theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._receiver = fd_passing.Receiver(self._socket)

    def spawn(self) -> None:
        """Have the zygote fork the process, in a control group with its limits."""
        with self._theirs:
            self._group, self._coming = self.zygote.spawn(self.record.id, self.record.uid_index, self._theirs)
        self.record.group = self._group.name
        # From here on the zygote works at the same time. Messages wait for the process in its socket.
        self._group.resize(self._limits)

    async def confine(self, needs: Needs, control: DeviceControl) -> None:
        """Put it into a group that opens no devices but its own, before it has any of them."""
        self.handed = devices.hand_over(needs)
        spawned = await self.wait_spawned()
        try:
            self.record.device_group = control.confine(spawned.pid, self.record.group, self.handed.rules)
        except OSError:
            # It is not watched yet. Without a containment plan it ends when our socket does.
            os.close(spawned.pidfd)
            self.spawned = None
            raise

    def contain(self, request: plan.SandboxRequest, mount_fd: int, *, ahead: bool, debug: bool) -> None:
        """Send it the containment plan, and the descriptors that it needs for that and afterwards."""
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

    def assign(self, boot: Header) -> None:
        """Assign it to a sandbox: it is that sandbox from then on, also when the keeper ends."""
        fd_passing.send(self._socket, {"t": "be", "boot": boot})

    async def wait_spawned(self) -> Spawned:
        """Wait until the process exists."""
        assert self._coming is not None
        async with asyncio.timeout(SPAWN_TIMEOUT_S):
            self.spawned = await self._coming
        self.record.pid = self.spawned.pid
        self.record.start_time = procfs.start_time(self.spawned.pid)
        return self.spawned

    async def wait_contained(self) -> None:
        """Wait until it reports that every step was taken. Raises EngineUnavailable when one failed."""
        async with asyncio.timeout(BOOT_TIMEOUT_S):
            answer = await self._receiver.receive_async()
        if answer["t"] != "ready":
            raise EngineUnavailable(f"a layer of isolation could not be applied: {answer.get('message')}")

    def resize(self, limits: Limits) -> None:
        """Apply the limits of its sandbox, if they differ."""
        assert self._group is not None
        wanted = group_limits(limits)
        if wanted != self._limits:
            self._group.resize(wanted)

    def is_usable(self) -> bool:
        """Whether the process and its zygote still run."""
        if self.spawned is None or not self.zygote.is_ready:
            return False
        ended = select.poll()
        ended.register(self.spawned.pidfd, select.POLLIN)
        return not ended.poll(0)

    def close(self) -> None:
        """Close the connection to it. A process that is not assigned ends."""
        self._theirs.close()
        self._receiver.close()
        if self.handed is not None:
            self.handed.close()
            self.handed = None
        if self._coming is not None:
            self._coming.cancel()

    async def undo(self) -> None:
        """Kill it, and remove all that was made for it."""
        self.close()
        if self.spawned is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.spawned.pidfd, signal.SIGKILL)
            await fd_passing.wait_readable(self.spawned.pidfd)
            os.close(self.spawned.pidfd)
            self.spawned = None
        if self._group is not None:
            self._group.kill()
            self._group.remove()
        self.record.erase()


def build_boot(record: Record, params: Header) -> Header:
    """Build what the process of a sandbox learns of it after its containment (see `Boot`)."""
    return {
        "sandbox_id": record.id,
        "workspace": plan.WORKSPACE,
        "env": _build_environment(params),
        "limits": params["limits"],
        "preload": params["image"]["preload"],
        "single_use": params["single_use"],
    }


@contextlib.contextmanager
def translated_errors(zygote: Zygote) -> Iterator[None]:
    """Raise low-level errors of a start as StartFailed, or as ZygoteGone where the zygote is dead."""
    try:
        yield
    except BrokenPipeError as error:
        # The process that should have read our message is gone, most likely with the zygote.
        zygote.give_up()
        raise ZygoteGone("the zygote of this image ended") from error
    except (EOFError, OSError, ProtocolError, TimeoutError) as error:
        raise StartFailed(f"the sandbox did not start: {str(error) or type(error).__name__}") from error


def group_limits(limits: Limits) -> GroupLimits:
    """Return what all processes of a sandbox with these limits may use together."""
    # WHY: checkpoints are the service's, not the program's: a program that fits its limit is not killed by them.
    # Beside those that rollback can reach there is one of the newest state, which a crash falls back on.
    checkpoints = limits.checkpoint_bytes * (limits.checkpoints + 1 if limits.checkpoints else 0)
    memory_bytes = limits.memory_bytes + checkpoints + OVERHEAD_BYTES
    return GroupLimits(memory_bytes=memory_bytes, cpus=limits.cpus, pids=limits.pids)


def _build_environment(params: Header) -> dict[str, str]:
    env = plan.build_environment(params["image"]["env"], {**params["common_env"], **params["env"]})
    if not params.get("gpus"):
        return env
    needs = devices.Needs.parse(params["gpus"])
    return {**plan.add_driver(env, needs.driver), "WARREN_GPUS": ":".join(needs.main)}
