"""All sandboxes of one data folder: made, found again, measured and removed. Runs inside the keeper."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from warren.domain.errors import Conflict, EngineUnavailable, NotFound, QuotaExceeded, SandboxLost
from warren.domain.values import Limits, Storage
from warren.engines.local.containment import plan
from warren.engines.local.keeper import guest_snapshot, prefork, records
from warren.engines.local.keeper.flush import Flush
from warren.engines.local.keeper.prefork import Birth, Kind, Prefork
from warren.engines.local.keeper.records import Record
from warren.engines.local.keeper.workspaces import Workspaces
from warren.engines.local.keeper.zygote_launch import ID_COUNT, Launch
from warren.engines.local.keeper.zygotes import Zygote, ZygoteGone
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
READY_AFTER_S = 0.02
AHEAD_AFTER_S = 0.1
"""Without another create, before the next sandbox is begun: longer than most first calls, shorter than most pauses."""


class Sandboxes:
    """The sandboxes of one data folder, and the zygotes they come from."""

    def __init__(
        self, folder: str, *, optional_layers: frozenset[str], search: Search | None = None, debug: bool = False
    ) -> None:
        self._folder = folder
        self._search = search or Search(group_name(folder))
        self._optional = optional_layers
        self._debug = debug
        self._records: dict[str, Record] = {}
        self._watched: dict[str, int] = {}
        """Descriptor of each running sandbox's process 1, by sandbox id."""
        self._ended: dict[str, asyncio.Event] = {}
        self._zygotes: dict[str, Zygote] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        # WHY: each takes a dozen descriptors, most of them on their way through sockets, and those are counted too.
        self._booting = asyncio.Semaphore(BOOTS_AT_ONCE)
        self._ahead: dict[Kind, asyncio.TimerHandle] = {}
        self._created_at = 0.0
        """When the next process is begun, by digest of its image."""
        self._closed = False
        self._layers: frozenset[str] = frozenset()
        self._caveats: list[str] = []
        self._base_uid: int | None = None

    @property
    def is_busy(self) -> bool:
        """Whether any sandbox is running."""
        return bool(self._watched)

    async def open(self) -> None:
        """Check the layers and take over what an earlier keeper left. Raises EngineUnavailable."""
        for name in ("sandboxes", "zygotes"):
            os.makedirs(os.path.join(self._folder, name), mode=0o700, exist_ok=True)
        probe.check_names(self._optional)
        self._cgroups = Cgroups.open(self._search, os.path.join(self._folder, "cgroups.json"))
        self._layers = self._check_layers()
        if "uid" in self._layers:
            self._base_uid = uids.claim(self._folder)
        self._devices = DeviceControl(
            group_name(self._folder),
            is_root=self._base_uid is not None,
            holds=devices.LAYER in self._layers,
            is_optional=devices.LAYER in self._optional,
        )
        self._guest_path = guest_snapshot.take_snapshot(os.path.join(self._folder, "guest"))
        self._version = os.path.basename(self._guest_path)
        self._workspaces = Workspaces(
            os.path.join(self._folder, "templates"),
            as_images=self._base_uid is not None and "disk" in self._layers,
            can_mount=self._base_uid is not None,
        )
        self._births = Prefork(
            os.path.join(self._folder, "births"), self._workspaces, self._layers, self._base_uid, debug=self._debug
        )
        for record in records.load_records(os.path.join(self._folder, "sandboxes")):
            self._records[record.id] = record
            if self._cgroups.is_copied:
                record.disown()
            self._adopt(record)
        if self._cgroups.is_copied:
            shutil.rmtree(os.path.join(self._folder, "zygotes"))
            os.mkdir(os.path.join(self._folder, "zygotes"), 0o700)
        await self._adopt_zygotes()
        self._remove_stray_groups()
        self._devices.sweep(record.device_group for record in self._records.values())

    def _check_layers(self) -> frozenset[str]:
        """Return the layers that hold. Raises EngineUnavailable, with no group left, when one is missing."""
        layers = probe.probe(self._cgroups)
        missing = probe.find_missing(layers, self._optional)
        if missing:
            # With sandboxes of an earlier keeper in it, it stays for the next one.
            with contextlib.suppress(OSError):
                self._cgroups.remove_unused()
            first, others = missing[0], ", ".join(layer.name for layer in missing[1:])
            more = f" (nor does {others}: `warren doctor` shows all)" if others else ""
            raise EngineUnavailable(f"layer {first.name} does not hold here{more}: {first.detail}; {first.fix}")
        given_up = self._optional - probe.WITHOUT_ASKING
        self._caveats = [f"layer {layer.name}: {layer.detail}" for layer in layers if layer.stand_in]
        self._caveats += [
            f"layer {layer.name} is given up (optional_layers), and does not hold: {layer.detail}"
            for layer in layers
            if not layer.holds and layer.name in given_up
        ]
        return frozenset(layer.name for layer in layers if layer.holds)

    async def close(self) -> None:
        """Let go of the sandboxes and end the zygotes."""
        self._closed = True
        for timer in self._ahead.values():
            timer.cancel()
        await self._births.close()
        for zygote in self._zygotes.values():
            await zygote.close(kill=True)
        loop = asyncio.get_running_loop()
        for fd in self._watched.values():
            loop.remove_reader(fd)
            os.close(fd)
        if not self._watched:
            self._cgroups.remove_all()
        self._workspaces.close()

    def _get_ready(self, limits: Limits) -> None:
        if not self._closed and not self._booting.locked():
            self._workspaces.get_ready(limits)

    def _plan_ahead(self, kind: Kind, limits: Limits) -> None:
        """Have the next sandbox like this one begun, once nobody has asked for one for a while."""
        loop = asyncio.get_running_loop()
        # After the answer, when nobody waits: attaching a disk takes longer than anything else that we do.
        loop.call_later(READY_AFTER_S, self._get_ready, limits)
        self._created_at = loop.time()
        before = self._ahead.get(kind)
        if before is not None:
            before.cancel()
        self._begin_soon(kind, limits)

    def _begin_soon(self, kind: Kind, limits: Limits) -> None:
        loop = asyncio.get_running_loop()
        self._ahead[kind] = loop.call_later(AHEAD_AFTER_S, self._begin_next, kind, limits, self._created_at)

    def _begin_next(self, kind: Kind, limits: Limits, created_at: float) -> None:
        if self._created_at != created_at:
            # Somebody asks for others: it can wait until they have them.
            self._begin_soon(kind, limits)
            return
        zygote = self._zygotes.get(kind.digest)
        if self._closed or zygote is None or not zygote.is_ready or self._births.is_ready(kind, limits):
            return
        # Without a free id there is nothing to make ahead; whoever asks is told.
        with contextlib.suppress(QuotaExceeded):
            self._births.get_ready(zygote, kind, limits, self._free_index())

    def describe(self) -> Header:
        """Say what an engine wants to know when it connects."""
        config = {"optional_layers": sorted(self._optional), "debug": self._debug}
        layers = {"layers": sorted(self._layers), "caveats": self._caveats}
        return {"version": self._version, "config": config, **layers}

    async def create(self, params: Header) -> Header:
        """Make a running sandbox."""
        limits = Limits(**params["limits"])
        storage = Storage(params["storage"])
        self._check_storage(storage)
        _check_image(params["image"])
        digest = params["image"]["digest"]
        kind = Kind(digest, storage)
        needs = self._needs(params)
        birth = self._births.take(kind, limits) if needs is None and self._is_new(params["id"]) else None
        if birth is None or not await self._claim(birth, params, limits):
            record = self._new_record(params["id"], limits, storage, digest)
            try:
                async with self._booting:
                    await self._boot_or_retry(record, params, limits)
            except BaseException:
                await self._end(record)
                self._forget(record)
                raise
        if needs is None and (storage == Storage.EPHEMERAL or self._workspaces.as_images):
            self._plan_ahead(kind, limits)
        return {}

    async def start(self, params: Header) -> Header:
        """Run a stopped sandbox again."""
        record = self._find(params["id"])
        if record.state == records.RUNNING:
            raise Conflict("the sandbox is running")
        if record.storage != Storage.PERSISTENT:
            raise SandboxLost("an ephemeral sandbox cannot be started again: its workspace went when it stopped")
        limits = Limits(**params["limits"])
        record.limits, record.image = asdict(limits), params["image"]["digest"]
        record.state = records.MAKING
        record.save()
        try:
            async with self._booting:
                await self._boot_or_retry(record, params, limits)
        except BaseException:
            await self._end(record)
            raise
        return {}

    async def stop(self, params: Header) -> Header:
        """End its processes; a persistent workspace stays, and what is missing of it is said."""
        record = self._find(params["id"])
        is_flushed = record.state == records.RUNNING and os.path.exists(record.disk)
        flush = Flush(record.pid, plan.WORKSPACE, self._folder) if is_flushed else None
        await self._end(record)
        return {"caveat": None if flush is None else await flush.finish()}

    async def stop_all(self) -> None:
        """Stop every sandbox that is running; persistent workspaces are on disk then."""
        running = [record.id for record in self._records.values() if record.state == records.RUNNING]
        await asyncio.gather(*(self.stop({"id": each}) for each in running), return_exceptions=True)

    async def destroy(self, params: Header) -> Header:
        """Remove it, workspace and all."""
        record = self._records.get(params["id"])
        if record is not None:
            await self._kill(record)
            self._remove_group(record)
            self._forget(record)
        return {}

    async def resize(self, params: Header) -> Header:
        """Apply other limits to a running sandbox."""
        record = self._find(params["id"], running=True)
        limits = Limits(**params["limits"])
        if (limits.disk_bytes, limits.disk_inodes) != (record.limits["disk_bytes"], record.limits["disk_inodes"]):
            raise Conflict("the disk of a sandbox cannot be resized while it exists; create it with the size it needs")
        self._cgroups.group(record.group).resize(prefork.group_limits(limits))
        record.limits = asdict(limits)
        record.save()
        return {}

    async def usage(self, params: Header) -> Header:
        """Measure a running sandbox from outside."""
        record = self._find(params["id"], running=True)
        usage: Header = asdict(self._cgroups.group(record.group).usage())
        usage |= {"disk_bytes": None, "disk_inodes": None}
        with contextlib.suppress(OSError):
            disk = disk_image.measure(f"/proc/{record.pid}/root{plan.WORKSPACE}")
            usage |= {"disk_bytes": disk.used_bytes, "disk_inodes": disk.used_inodes}
        return {"usage": usage}

    async def list_all(self, _params: Header) -> Header:
        """List all sandboxes, whatever their state."""
        known = self._records.values()
        names = ("id", "state", "image", "layers", "gpus")
        return {"body": [{name: getattr(record, name) for name in names} for record in known]}

    async def _boot_or_retry(self, record: Record, params: Header, limits: Limits) -> None:
        """Boot it; once more if the zygote turns out to be dead, which is noticed only when it is asked."""
        try:
            await self._boot(record, params, limits)
        except ZygoteGone:
            await self._end(record)
            record.state = records.MAKING
            await self._boot(record, params, limits)

    async def _boot(self, record: Record, params: Header, limits: Limits) -> None:
        """Have a process made, tell it how to contain itself and who it is, and wait until it says that it is ready."""
        needs = self._needs(params)
        zygote = await self._zygote(params["image"], params["common_env"], needs)
        record.gpus = [] if needs is None else list(needs.ids)
        birth = Birth(record, limits, zygote)
        with contextlib.closing(birth), prefork.explained(zygote):
            await self._births.begin(birth, limits, needs=needs, control=self._devices)
            birth.name(_identity(record, params))
            newborn = await birth.wait_born()
            # As running, though it is not yet contained: then nothing is left to do when it is. If we die first, the
            # sandbox does too, for it cannot tell us that it is ready.
            self._save_running(record)
            self._watch(record, newborn.pidfd)
            await birth.wait_contained()
        record.state = records.RUNNING

    async def _claim(self, birth: Birth, params: Header, limits: Limits) -> bool:
        """Have the process that is ready be this sandbox. False when that fails: nothing is left of it then."""
        record = birth.record
        assert birth.newborn is not None
        record.id, record.limits = params["id"], asdict(limits)
        self._records[record.id] = record
        self._watch(record, birth.newborn.pidfd)
        try:
            birth.resize(limits)
            # Before it knows who it is: if we die in between it ends, and its record is found.
            self._save_running(record)
            record.move(self._place(record.id))
            birth.name(_identity(record, params))
        except OSError:
            await self._end(record)
            self._forget(record)
            return False
        finally:
            birth.close()
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

    async def _zygote(self, image: dict[str, Any], env: dict[str, str], needs: Needs | None) -> Zygote:
        """Return the zygote of that image, starting one if there is none, with what all its sandboxes have in `env`."""
        key = image["digest"] if needs is None else f"{image['digest']}-{needs.key}"
        async with self._opening.setdefault(key, asyncio.Lock()):
            zygote = self._zygotes.get(key)
            if zygote is None or not zygote.is_ready:
                if zygote is not None:
                    await zygote.close(kill=True)
                zygote = self._new_zygote(key)
                shared = None if self._base_uid is not None else os.path.join(self._folder, "sandboxes")
                await zygote.start(
                    Launch(
                        image=image,
                        env=env,
                        guest_path=self._guest_path,
                        version=self._version,
                        base_uid=self._base_uid,
                        shared_path=shared,
                        driver=None if needs is None else needs.driver,
                    )
                )
                self._zygotes[key] = zygote
            return zygote

    def _new_zygote(self, digest: str) -> Zygote:
        zygote = Zygote(os.path.join(self._folder, "zygotes", digest), self._cgroups)
        zygote.on_end = lambda: self._births.forsake(digest)
        return zygote

    async def _adopt_zygotes(self) -> None:
        for digest in os.listdir(os.path.join(self._folder, "zygotes")):
            zygote = self._new_zygote(digest)
            if await zygote.adopt(self._version):
                self._zygotes[digest] = zygote

    def _watch(self, record: Record, pidfd: int) -> None:
        self._watched[record.id] = pidfd
        self._ended[record.id] = asyncio.Event()
        asyncio.get_running_loop().add_reader(pidfd, self._died, record)

    def _died(self, record: Record) -> None:
        pidfd = self._watched.pop(record.id)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
        self._ended.pop(record.id).set()
        if record.state == records.RUNNING:
            self._clean_up(record)

    async def _end(self, record: Record) -> None:
        """Kill process 1, and with it everything in the sandbox, and clean up once it is gone."""
        await self._kill(record)
        self._clean_up(record)

    async def _kill(self, record: Record) -> None:
        record.state = records.STOPPED if record.state == records.RUNNING else record.state
        ended = self._ended.get(record.id)
        if ended is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watched[record.id], signal.SIGKILL)
            await ended.wait()

    def _clean_up(self, record: Record) -> None:
        """Remove what a sandbox without processes does not need: group, socket, an ephemeral workspace."""
        self._remove_group(record)
        record.drop_runtime()
        if record.storage == Storage.EPHEMERAL:
            record.drop_workspace()
        record.state = records.STOPPED
        if os.path.isdir(record.folder):
            # On a full disk the old one stays, of a process that has ended: whoever reads it cleans up once more. What
            # must not be is that nothing can be removed where room is needed.
            with contextlib.suppress(OSError):
                record.save()

    def _remove_group(self, record: Record) -> None:
        if record.group:
            group = self._cgroups.group(record.group)
            group.kill()
            group.remove()
            self._devices.release(record.device_group)
            record.group = record.device_group = ""

    def _forget(self, record: Record) -> None:
        self._records.pop(record.id, None)
        record.erase()

    def _adopt(self, record: Record) -> None:
        """Take over a sandbox of an earlier keeper, or clean up after one that did not live to see us."""
        pidfd = record.open_process()
        if pidfd >= 0 and record.state == records.RUNNING:
            self._watch(record, pidfd)
            return
        if pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
        self._clean_up(record)

    def _remove_stray_groups(self) -> None:
        known = {record.group for record in self._records.values()}
        known |= {zygote.waiting_in for zygote in self._zygotes.values()}
        for name in self._cgroups.names():
            if name not in known:
                group = self._cgroups.group(name)
                group.kill()
                group.remove()

    def _new_record(self, sandbox_id: str, limits: Limits, storage: Storage, digest: str) -> Record:
        folder = self._place(sandbox_id)
        uid_index = self._free_index()
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            raise Conflict(f"sandbox {sandbox_id} exists already") from None
        record = Record(id=sandbox_id, folder=folder, storage=storage, image=digest, uid_index=uid_index)
        record.limits = asdict(limits)
        record.save()
        self._records[sandbox_id] = record
        return record

    def _place(self, sandbox_id: str) -> str:
        return os.path.join(self._folder, "sandboxes", sandbox_id)

    def _is_new(self, sandbox_id: str) -> bool:
        return not os.path.lexists(self._place(sandbox_id))

    def _free_index(self) -> int:
        used = {record.uid_index for record in self._records.values()} | self._births.uid_indexes
        for index in range(1, ID_COUNT):
            if index not in used:
                return index
        raise QuotaExceeded(f"all {ID_COUNT - 1} host ids of this data folder are in use; destroy some sandboxes")

    def _check_storage(self, storage: Storage) -> None:
        if storage == Storage.PERSISTENT and self._base_uid is None and "disk" not in self._optional:
            raise EngineUnavailable(remedies.PERSISTENT)

    def _find(self, sandbox_id: str, *, running: bool = False) -> Record:
        record = self._records.get(sandbox_id)
        if record is None:
            raise SandboxLost(f"there is no sandbox {sandbox_id}")
        if running and record.state != records.RUNNING:
            raise SandboxLost("the sandbox is not running")
        return record


def _check_image(image: dict[str, Any]) -> None:
    if not os.path.isdir(os.path.join(image["path"], "venv")):
        raise NotFound(f"image {image['name']} is not built: run `warren image build {image['name']}`")


def _identity(record: Record, params: Header) -> Header:
    """Build what the process of a sandbox is told of it once it is contained."""
    return {
        "sandbox_id": record.id,
        "workspace": plan.WORKSPACE,
        "env": _environment(params),
        "limits": params["limits"],
        "preload": params["image"]["preload"],
        "single_use": params["single_use"],
    }


def _environment(params: Header) -> dict[str, str]:
    env = plan.build_environment(params["image"]["env"], {**params["common_env"], **params["env"]})
    if not params.get("gpus"):
        return env
    needs = Needs.parse(params["gpus"])
    return {**plan.add_driver(env, needs.driver), "WARREN_GPUS": ":".join(needs.main)}
