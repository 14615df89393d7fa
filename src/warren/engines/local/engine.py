"""The local engine behind the seam. It starts or finds the keeper, and forwards every operation to it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from warren.domain.errors import EngineUnavailable, SandboxLost, StartFailed, by_code
from warren.domain.gpus import choose
from warren.domain.values import Handle, Storage, Usage
from warren.engines import state_files, unix_channel
from warren.engines.gpus import cdi
from warren.engines.gpus.inventory import GpuInventory
from warren.engines.local import spawn
from warren.engines.local.client import KeeperClient, KeeperGone
from warren.engines.local.keeper import guest_snapshot
from warren.engines.local.linux import devices
from warren.engines.local.probe import remedies
from warren.engines.reach import load_reach

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from warren.domain.gpus import Gpu
    from warren.domain.values import Limits, SandboxSpec
    from warren.engines.base import Channel

_TRIES = 4
"""Keepers that are started: another process may retire the one that was found or started."""


class LocalEngine:
    """Sandboxes on this host, from namespaces and forks of a zygote. Needs only a Linux kernel."""

    name = "local"

    def __init__(
        self,
        data_dir: str,
        *,
        optional_layers: Iterable[str] = (),
        debug: bool = False,
        cdi_dirs: Iterable[str] = cdi.DIRS,
    ) -> None:
        self._folder = os.path.join(os.path.abspath(data_dir), "local")
        self._socket = os.path.join(self._folder, "keeper.sock")
        self._log = os.path.join(self._folder, "keeper.log")
        self._config: dict[str, Any] = {"optional_layers": sorted(set(optional_layers)), "debug": debug}
        self._client: KeeperClient | None = None
        self._opening = asyncio.Lock()
        self._inventory = GpuInventory(cdi_dirs)
        self.reach = ""

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers of isolation in force, once the engine is open."""
        return tuple(self._client.hello["layers"]) if self._client is not None else ()

    @property
    def has_own_network(self) -> bool:
        """Whether that layer is in force, once the engine is open."""
        return "net" in self.layers

    @property
    def caveats(self) -> tuple[str, ...]:
        """Limitations of this host, once the engine is open: refused features, and stand-ins for layers."""
        if self._client is None:
            return ()
        is_bounded = "uid" in self.layers or "disk" in self._config["optional_layers"]
        refused = () if is_bounded else (f"storage persistent is refused: {remedies.PERSISTENT}",)
        return (*refused, *self._client.hello["caveats"])

    async def open(self) -> None:
        """Connect to the keeper; start one if there is none, or it has another version or configuration."""
        await self._keeper()
        self.reach = await asyncio.to_thread(load_reach, self._folder)

    async def close(self) -> None:
        """Disconnect. Keeper, zygotes and sandboxes live on."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def retire(self) -> None:
        """End keeper and zygotes; running sandboxes live on, and the next keeper adopts them."""
        # A task that finds the keeper gone waits meanwhile: the keeper that it starts must not be disconnected here.
        async with self._opening:
            with contextlib.suppress(OSError):
                client = await KeeperClient.connect(self._socket)
                await _retire(client)
            await self.close()

    async def images_in_use(self) -> frozenset[str]:
        """Return the digests of the images of running sandboxes; starts nothing."""
        try:
            client = await KeeperClient.connect(self._socket)
        except OSError:
            return frozenset()
        async with contextlib.aclosing(client):
            listed = (await client.call("list")).get("body", ())
        return frozenset(entry["image"] for entry in listed if entry["state"] == "running")

    async def create(self, spec: SandboxSpec) -> Handle:
        """Make a running sandbox whose agent answers."""
        handle = Handle(self.name, spec.id)
        params = _spec_params(spec, await self._describe_gpus(spec))
        try:
            await (await self._keeper()).call("create", **params)
        except KeeperGone:
            # A half-made sandbox may exist under this id: remove it, and let the next keeper make it.
            await self.destroy(handle)
            await self._call("create", **params)
        return handle

    def describe_create(self, spec: SandboxSpec) -> dict[str, Any]:
        """Return how a command without this class asks the keeper for such a sandbox; id and variables are its own."""
        assert self._client is not None
        create = {name: value for name, value in _spec_params(spec, None).items() if name not in {"id", "env"}}
        hello = self._client.hello
        return {
            "keeper": self._socket,
            "version": hello["version"],
            "config": hello["config"],
            "sandboxes": os.path.join(self._folder, "sandboxes"),
            "create": create,
        }

    async def connect(self, handle: Handle) -> Channel:
        """Open one more channel to the agent."""
        return await unix_channel.connect(os.path.join(self._folder, "sandboxes", handle.sandbox_id, "agent.sock"))

    async def resize(self, handle: Handle, limits: Limits) -> None:
        """Apply other limits to a running sandbox; its disk keeps its size."""
        await self._call("resize", id=handle.sandbox_id, limits=asdict(limits))

    async def stop(self, handle: Handle) -> str | None:
        """End its processes; a persistent workspace stays."""
        caveat: str | None = (await self._call("stop", id=handle.sandbox_id))["caveat"]
        return caveat

    async def start(self, handle: Handle, spec: SandboxSpec) -> Handle:
        """Run a stopped persistent sandbox again, with its workspace."""
        if spec.id != handle.sandbox_id:
            raise SandboxLost(f"the spec is of {spec.id}, the handle of {handle.sandbox_id}")
        await self._call("start", **_spec_params(spec, await self._describe_gpus(spec)))
        return handle

    async def destroy(self, handle: Handle) -> None:
        """Remove it, workspace and all."""
        await self._call("destroy", id=handle.sandbox_id)

    async def usage(self, handle: Handle) -> Usage:
        """Measure it from outside."""
        return Usage(**(await self._call("usage", id=handle.sandbox_id))["usage"])

    async def handles(self) -> AsyncIterator[Handle]:
        """List all sandboxes of this data folder."""
        for entry in (await self._call("list")).get("body", ()):
            yield Handle(self.name, entry["id"], Storage(entry["storage"]), entry["store_id"])

    async def gpus(self) -> tuple[Gpu, ...]:
        """List the GPUs of this host, whether each can be given to a sandbox, and how many have it."""
        inventory = await asyncio.to_thread(self._inventory.load)
        if not inventory.found:
            return ()
        listed = (await self._call("list")).get("body", ())
        return inventory.list_gpus(listed, devices.why_refused(self.layers, self._config["optional_layers"]))

    async def _describe_gpus(self, spec: SandboxSpec) -> dict[str, Any] | None:
        if not spec.gpus:
            return None
        inventory = await asyncio.to_thread(self._inventory.load)
        chosen = choose(spec.gpus, await self.gpus(), inventory.problems)
        return await asyncio.to_thread(inventory.describe, chosen) if chosen else None

    async def _call(self, op: str, **params: Any) -> dict[str, Any]:
        """Call the keeper; if it ends before it answers, call the next one. All but `create` can be repeated."""
        try:
            return await (await self._keeper()).call(op, **params)
        except KeeperGone:
            return await (await self._keeper()).call(op, **params)

    async def _keeper(self) -> KeeperClient:
        if self._client is not None and self._client.is_open:
            return self._client
        async with self._opening:
            if self._client is None or not self._client.is_open:
                await self.close()
                self._client = await self._connect()
            return self._client

    async def _connect(self) -> KeeperClient:
        version = await asyncio.to_thread(guest_snapshot.compute_digest)
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            lock = await _locked(os.path.join(self._folder, "keeper.lock"))
        except OSError as error:
            done = "written" if os.path.isdir(self._folder) else "made"
            why = f"the data folder {self._folder} cannot be {done}: {error.strerror}"
            raise EngineUnavailable(f"{why}; choose another with WARREN_DATA_DIR") from error
        with lock:
            said_before = 0
            for have_started in range(_TRIES + 1):
                with contextlib.suppress(OSError):
                    client = await KeeperClient.connect(self._socket)
                    # A keeper that may do without a layer must not serve an engine that requires it.
                    if client.hello.get("version") == version and client.hello.get("config") == self._config:
                        return client
                    await _retire(client)
                # Connect after every start, also the last: no started keeper stays unused.
                if have_started < _TRIES:
                    said_before = await self._start()
        last_words = state_files.last_words(self._log, said_before)
        raise EngineUnavailable(f"the keeper ends as soon as it has started: {last_words}")

    async def _start(self) -> int:
        """Start a keeper, and wait until it serves, or finds another; returns the offset of its part of the log."""
        # Appended to: a keeper that serves may be writing to it.
        with open(self._log, "a+b") as log:
            said_before = state_files.trim(log.fileno())
            answer = await asyncio.to_thread(
                spawn.run_module, "warren.engines.local.keeper.main", self._folder, self._config, log
            )
        if answer["error"] is not None:
            raise (by_code(answer["error"]["code"]) or StartFailed)(answer["error"]["message"])
        return said_before


async def _retire(client: KeeperClient) -> None:
    """Retire a keeper, and wait until it has ended."""
    with contextlib.suppress(KeeperGone, ProcessLookupError):
        ended = os.pidfd_open(int(client.hello["pid"]))
        try:
            await client.call("retire")
            while not select.select([ended], [], [], 0)[0]:
                await asyncio.sleep(0.005)
        finally:
            os.close(ended)
    await client.aclose()


async def _locked(path: str) -> contextlib.closing[Any]:
    """Hold a file lock, so that two engines never start two keepers."""
    file = open(path, "w", encoding="utf-8")  # noqa: SIM115  (closing it is what unlocks)
    await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
    return contextlib.closing(file)


def _spec_params(spec: SandboxSpec, gpus: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "id": spec.id,
        "image": {**asdict(spec.image), "env": dict(spec.image.env)},
        "limits": asdict(spec.limits),
        "storage": spec.storage.value,
        "common_env": dict(spec.common_env),
        "env": dict(spec.env),
        "single_use": spec.single_use,
        "gpus": gpus,
        "store_id": spec.store_id,
    }
