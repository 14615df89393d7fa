"""All sandboxes of one data folder: created, adopted, measured and removed. Runs inside the keeper."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict, EngineUnavailable, NotFound, QuotaExceeded, SandboxLost
from warren.domain.values import Limits, Storage
from warren.engines.local.containment import plan
from warren.engines.local.keeper import guest_snapshot, records
from warren.engines.local.keeper.prefork import Kind, Prefork, PreforkTimer
from warren.engines.local.keeper.records import Record
from warren.engines.local.keeper.registry import Registry
from warren.engines.local.keeper.sandbox_process import SandboxProcess, build_boot, group_limits, translated_errors
from warren.engines.local.keeper.workspaces import Flush, Workspaces
from warren.engines.local.keeper.zygote_launch import ID_COUNT
from warren.engines.local.keeper.zygote_pool import ZygotePool
from warren.engines.local.keeper.zygotes import ZygoteGone
from warren.engines.local.linux import devices, disk_image, uids
from warren.engines.local.linux.cgroup_hierarchies import Search
from warren.engines.local.linux.cgroups import Cgroups
from warren.engines.local.linux.devices import DeviceControl, Needs
from warren.engines.local.probe import layers as probe
from warren.engines.local.probe import remedies
from warren.engines.local.spawn import group_name

if TYPE_CHECKING:
    from warren.guest.wire.frames import Header

BOOTS_AT_ONCE = 16


class Sandboxes:
    """The operations of the keeper on the sandboxes of one data folder."""

    def __init__(
        self, folder: str, *, optional_layers: frozenset[str], search: Search | None = None, debug: bool = False
    ) -> None:
        self._folder = folder
        self._search = search or Search(group_name(folder))
        self._optional = optional_layers
        self._debug = debug
        # WHY: each boot takes a dozen descriptors, most of them in flight through sockets, and those are counted too.
        self._booting = asyncio.Semaphore(BOOTS_AT_ONCE)
        self._layers: frozenset[str] = frozenset()
        self._caveats: list[str] = []
        self._has_uids = False
        """Whether sandboxes have host ids of their own: as root."""

    @property
    def is_busy(self) -> bool:
        """Whether any sandbox is running."""
        return self._registry.is_busy

    async def open(self) -> None:
        """Check the layers and adopt the sandboxes of an earlier keeper. Raises EngineUnavailable."""
        for name in ("sandboxes", "zygotes"):
            os.makedirs(self._at(name), mode=0o700, exist_ok=True)
        probe.check_names(self._optional)
        self._cgroups = Cgroups.open(self._search, self._at("cgroups.json"))
        self._layers = self._check_layers()
        self._has_uids = "uid" in self._layers
        self._devices = DeviceControl(
            group_name(self._folder),
            is_root=self._has_uids,
            holds=devices.LAYER in self._layers,
            is_optional=devices.LAYER in self._optional,
        )
        self._make_parts()
        self._registry.load()
        if self._cgroups.is_copied:
            shutil.rmtree(self._at("zygotes"))
            os.mkdir(self._at("zygotes"), 0o700)
        await self._zygotes.adopt_all()
        self._remove_stray_groups()
        self._devices.sweep(record.device_group for record in self._registry)

    def _make_parts(self) -> None:
        guest_path = guest_snapshot.take_snapshot(self._at("guest"))
        self._version = os.path.basename(guest_path)
        self._registry = Registry(self._at("sandboxes"), self._cgroups, self._devices)
        self._workspaces = Workspaces(
            self._at("templates"),
            as_images=self._has_uids and "disk" in self._layers,
            can_mount=self._has_uids,
        )
        # The folder has the name by which a keeper of an earlier version removes it.
        self._prefork = Prefork(self._at("births"), self._workspaces, self._layers, debug=self._debug)
        self._zygotes = ZygotePool(
            self._at("zygotes"),
            self._cgroups,
            guest_path,
            find_base_uid=self._find_base_uid,
            shared_path=None if self._has_uids else self._at("sandboxes"),
            on_end=self._prefork.drop_image,
        )
        self._timer = PreforkTimer(
            self._prefork, self._workspaces, self._zygotes.find_ready, self._find_uid_index, self._booting.locked
        )

    def _check_layers(self) -> frozenset[str]:
        """Return the layers that hold. Raises EngineUnavailable, with no group left, when one is missing."""
        layers = probe.probe(self._cgroups)
        try:
            probe.require(layers, self._optional)
        except EngineUnavailable:
            # With sandboxes of an earlier keeper in it, it stays for the next one.
            with contextlib.suppress(OSError):
                self._cgroups.remove_unused()
            raise
        self._caveats = probe.list_caveats(layers, self._optional)
        return frozenset(layer.name for layer in layers if layer.holds)

    async def close(self, *, is_displaced: bool = False) -> None:
        """End the zygotes; running sandboxes live on.

        A displaced keeper, whose data folder was deleted and made again, removes nothing that another one may use.
        """
        self._timer.close()
        await self._prefork.close(keep_folder=is_displaced)
        await self._zygotes.close()
        self._registry.close()
        # WHY: a new folder may have the inode, and so the groups, of the deleted one.
        is_shared = is_displaced and os.path.isdir(self._folder) and group_name(self._folder) == self._search.name
        if not self._registry.is_busy and not is_shared:
            self._cgroups.remove_all()
        await self._workspaces.close()

    def describe(self) -> Header:
        """Build the greeting of an engine that connects."""
        config = {"optional_layers": sorted(self._optional), "debug": self._debug}
        layers = {"layers": sorted(self._layers), "caveats": self._caveats}
        return {"version": self._version, "config": config, **layers}

    async def create(self, params: Header) -> Header:
        """Make a running sandbox."""
        limits = Limits(**params["limits"])
        storage = Storage(params["storage"])
        image = params["image"]
        if storage == Storage.PERSISTENT and not self._has_uids and "disk" not in self._optional:
            raise EngineUnavailable(remedies.PERSISTENT)
        if not os.path.isdir(os.path.join(image["path"], "venv")):
            raise NotFound(f"image {image['name']} is not built: run `warren image build {image['name']}`")
        kind = Kind(image["digest"], storage)
        needs = self._needs(params)
        ready = self._prefork.take(kind, limits) if needs is None and self._registry.is_new(params["id"]) else None
        if ready is None or not await self._claim(ready, params, limits):
            record = Record(
                id=params["id"],
                folder=self._registry.path(params["id"]),
                storage=storage,
                image=kind.digest,
                uid_index=self._find_uid_index(),
                limits=asdict(limits),
                store_id=params["store_id"],
            )
            self._registry.create(record)
            try:
                await self._workspaces.prepare(record, limits)
                async with self._booting:
                    await self._boot_or_retry(record, params, limits)
            except BaseException:
                await self._registry.end(record)
                self._registry.forget(record)
                raise
        if needs is None and (storage == Storage.EPHEMERAL or self._workspaces.as_images):
            self._timer.restart(kind, limits)
        return {}

    async def start(self, params: Header) -> Header:
        """Run a stopped sandbox again."""
        record = self._registry.find(params["id"])
        if record.state == records.RUNNING:
            raise Conflict("the sandbox is running")
        if record.storage != Storage.PERSISTENT:
            raise SandboxLost("an ephemeral sandbox cannot be started again: its workspace went when it stopped")
        limits = Limits(**params["limits"])
        record.limits, record.image, record.store_id = asdict(limits), params["image"]["digest"], params["store_id"]
        record.state = records.MAKING
        record.save()
        try:
            await self._workspaces.prepare(record, limits)
            async with self._booting:
                await self._boot_or_retry(record, params, limits)
        except BaseException:
            await self._registry.end(record)
            raise
        return {}

    async def stop(self, params: Header) -> Header:
        """End its processes; a persistent workspace stays, and the caveat names a loss."""
        record = self._registry.find(params["id"])
        is_flushed = record.state == records.RUNNING and os.path.exists(record.disk)
        flush = Flush(record.pid, plan.WORKSPACE, self._folder) if is_flushed else None
        await self._registry.end(record)
        return {"caveat": None if flush is None else await flush.finish()}

    async def stop_all(self) -> None:
        """Stop every running sandbox; persistent workspaces are on disk then."""
        running = [record.id for record in self._registry if record.state == records.RUNNING]
        await asyncio.gather(*(self.stop({"id": each}) for each in running), return_exceptions=True)

    async def destroy(self, params: Header) -> Header:
        """Remove it, workspace and all."""
        record = self._registry.get(params["id"])
        if record is not None:
            await self._registry.destroy(record)
        return {}

    async def resize(self, params: Header) -> Header:
        """Apply other limits to a running sandbox."""
        record = self._registry.find(params["id"], running=True)
        limits = Limits(**params["limits"])
        if (limits.disk_bytes, limits.disk_inodes) != (record.limits["disk_bytes"], record.limits["disk_inodes"]):
            raise Conflict("the disk of a sandbox cannot be resized while it exists; create it with the size it needs")
        self._cgroups.group(record.group).resize(group_limits(limits))
        record.limits = asdict(limits)
        record.save()
        return {}

    async def usage(self, params: Header) -> Header:
        """Measure a running sandbox from outside."""
        record = self._registry.find(params["id"], running=True)
        usage: Header = asdict(self._cgroups.group(record.group).usage())
        usage |= {"disk_bytes": None, "disk_inodes": None}
        with contextlib.suppress(OSError):
            disk = disk_image.measure(f"/proc/{record.pid}/root{plan.WORKSPACE}")
            usage |= {"disk_bytes": disk.used_bytes, "disk_inodes": disk.used_inodes}
        return {"usage": usage}

    async def list_all(self, _params: Header) -> Header:
        """List all sandboxes, whatever their state."""
        names = ("id", "state", "storage", "image", "layers", "gpus", "store_id")
        return {"body": [{name: getattr(record, name) for name in names} for record in self._registry]}

    async def _boot_or_retry(self, record: Record, params: Header, limits: Limits) -> None:
        """Boot it; once more where the zygote turns out to be dead, which is noticed only by a request."""
        try:
            await self._boot(record, params, limits)
        except ZygoteGone:
            await self._registry.end(record)
            record.state = records.MAKING
            await self._boot(record, params, limits)

    async def _boot(self, record: Record, params: Header, limits: Limits) -> None:
        """Fork a process, send it its containment plan and its sandbox, and wait until it is contained."""
        needs = self._needs(params)
        zygote = await self._zygotes.get(params["image"], params["common_env"], needs)
        record.gpus = [] if needs is None else list(needs.ids)
        process = SandboxProcess(record, limits, zygote)
        with contextlib.closing(process), translated_errors(zygote):
            await self._prefork.begin(process, limits, needs=needs, control=self._devices)
            process.assign(build_boot(record, params))
            spawned = await process.wait_spawned()
            # Saved as running before it is contained: then nothing is left to do when it is. If the keeper dies first,
            # the sandbox does too, for it cannot report that it is ready.
            self._save_running(record)
            self._registry.watch(record, spawned.pidfd)
            await process.wait_contained()
        record.state = records.RUNNING

    async def _claim(self, ready: SandboxProcess, params: Header, limits: Limits) -> bool:
        """Assign the process that is ready to this sandbox. False, with nothing left of it, when that fails."""
        record = ready.record
        assert ready.spawned is not None
        record.id, record.limits, record.store_id = params["id"], asdict(limits), params["store_id"]
        self._registry.add(record)
        self._registry.watch(record, ready.spawned.pidfd)
        try:
            ready.resize(limits)
            # Before it is assigned: if the keeper dies in between the process ends, and its record is found.
            self._save_running(record)
            record.move(self._registry.path(record.id))
            ready.assign(build_boot(record, params))
        except OSError:
            await self._registry.end(record)
            self._registry.forget(record)
            return False
        finally:
            ready.close()
        record.state = records.RUNNING
        return True

    def _save_running(self, record: Record) -> None:
        record.layers = sorted(self._layers)
        record.save(state=records.RUNNING)

    def _needs(self, params: Header) -> Needs | None:
        """Return what a sandbox needs for its GPUs. Raises Unsupported or EngineUnavailable where none can have any."""
        if not params.get("gpus"):
            return None
        self._devices.check()
        return Needs.parse(params["gpus"])

    def _remove_stray_groups(self) -> None:
        known = {record.group for record in self._registry} | self._zygotes.groups
        for name in self._cgroups.names():
            if name not in known:
                group = self._cgroups.group(name)
                group.kill()
                group.remove()

    def _find_base_uid(self, image_name: str) -> int | None:
        """Return the first host id of an image: images have blocks of their own, which all their builds share."""
        if not self._has_uids:
            return None
        folder = self._at(f"uids/{hashlib.sha256(image_name.encode()).hexdigest()[:32]}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return uids.claim(folder)

    def _find_uid_index(self) -> int:
        used = self._registry.uid_indexes | self._prefork.uid_indexes
        for index in range(1, ID_COUNT):
            if index not in used:
                return index
        raise QuotaExceeded(f"all {ID_COUNT - 1} host ids of this data folder are in use; destroy some sandboxes")

    def _at(self, name: str) -> str:
        return os.path.join(self._folder, name)
