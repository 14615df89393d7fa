"""The bare engine: the guest as a plain process of this host, with NO isolation. For tests and development only."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from warren.domain.errors import Conflict, EngineUnavailable, SandboxLost, StartFailed, Unsupported
from warren.domain.values import Handle, Storage
from warren.engines import state_files, unix_channel
from warren.engines.bare.sandbox import BareSandbox, find_interpreter, link_library, start_agent
from warren.engines.reach import load_reach

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.domain.values import Limits, SandboxSpec, Usage

START_DEADLINE_S = 60.0
"""Between starting the interpreter and the agent's first byte; a large image imports for seconds."""
_NAME = re.compile(r"[a-z]{3}_[a-z0-9]{8,40}")


class BareEngine:
    """Sandboxes that are folders and processes of this user. All its state is on disk."""

    name = "bare"
    has_own_network = False

    def __init__(self, data_dir: str, *, allow: bool = False) -> None:
        self._home = os.path.join(os.path.abspath(data_dir), "bare")
        self._allow = allow
        self.reach = ""

    async def open(self) -> None:
        """Refuse, unless the operator allows code to run without isolation."""
        if not self._allow:
            raise EngineUnavailable(
                "the bare engine isolates nothing, so it runs only with allow_bare"
                " (--allow-bare on the command line, WARREN_ALLOW_BARE=true in the environment)"
            )
        await to_thread.run_sync(_make_private, self._home)
        self.reach = await to_thread.run_sync(load_reach, self._home)

    async def close(self) -> None:
        """Do nothing; sandboxes live on."""

    async def create(self, spec: SandboxSpec) -> Handle:
        """Make a folder, start an agent in it, and wait until it answers. Raises Unsupported for GPUs."""
        if not spec.gpus.is_optional:
            raise Unsupported("the bare engine has no GPUs to give: leave gpus out, or use the local engine")
        python = find_interpreter(self._home, spec)
        place = BareSandbox(os.path.join(self._home, spec.id), spec.id)
        try:
            os.mkdir(place.path, 0o700)
        except FileExistsError:
            raise Conflict(f"sandbox {spec.id} exists already") from None
        except OSError as exc:
            raise StartFailed(f"the folder of sandbox {spec.id} cannot be made: {exc.strerror}") from exc
        try:
            await self._launch(place, spec, python)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(place.remove)
            raise
        return Handle(self.name, spec.id)

    async def connect(self, handle: Handle) -> unix_channel.UnixChannel:
        """Open one more channel to the agent."""
        return await unix_channel.connect(self._place(handle).socket)

    async def resize(self, handle: Handle, limits: Limits) -> None:
        """Raise Unsupported: nothing here enforces a limit."""
        self._place(handle)
        raise Unsupported(f"the bare engine enforces no limits, so it cannot apply {limits}")

    async def stop(self, handle: Handle) -> None:
        """Kill all its processes; the workspace stays if it is persistent."""
        place = self._place(handle)
        if not await to_thread.run_sync(place.kill):
            raise StartFailed(f"some processes of sandbox {handle.sandbox_id} do not end")
        if place.record().get("storage") != Storage.PERSISTENT:
            await to_thread.run_sync(place.empty_workspace)

    async def start(self, handle: Handle, spec: SandboxSpec) -> Handle:
        """Start an agent again in the folder of a stopped sandbox."""
        place = self._place(handle)
        python = find_interpreter(self._home, spec)
        if place.is_running():
            raise Conflict(f"sandbox {handle.sandbox_id} is running")
        await to_thread.run_sync(place.kill)
        await self._launch(place, spec, python)
        return handle

    async def destroy(self, handle: Handle) -> None:
        """Kill its processes and remove its folder; fine when there is none."""
        if _NAME.fullmatch(handle.sandbox_id):
            await to_thread.run_sync(BareSandbox(os.path.join(self._home, handle.sandbox_id), handle.sandbox_id).remove)

    async def usage(self, handle: Handle) -> Usage:
        """Sum up its processes in /proc and the files of its workspace."""
        return await to_thread.run_sync(self._place(handle).usage)

    async def handles(self) -> AsyncIterator[Handle]:
        """List every sandbox folder, also those without processes."""
        names = await to_thread.run_sync(os.listdir, self._home)
        for name in sorted(names):
            if _NAME.fullmatch(name):
                record = BareSandbox(os.path.join(self._home, name), name).record()
                storage = Storage(record.get("storage", Storage.EPHEMERAL))
                yield Handle(self.name, name, storage, str(record.get("store_id", "")))

    def _place(self, handle: Handle) -> BareSandbox:
        path = os.path.join(self._home, handle.sandbox_id)
        if handle.engine != self.name or not _NAME.fullmatch(handle.sandbox_id) or not os.path.isdir(path):
            raise SandboxLost(f"the bare engine has no sandbox {handle.sandbox_id}")
        return BareSandbox(path, handle.sandbox_id)

    async def _launch(self, place: BareSandbox, spec: SandboxSpec, python: str) -> None:
        record = {"storage": spec.storage, "store_id": spec.store_id}
        place.write_record({**record, "pid": 0, "start": 0})
        library = link_library(self._home)
        process = await to_thread.run_sync(start_agent, place, spec, python, library)
        place.write_record({**record, "pid": process[0], "start": process[1]})
        answered = False
        with anyio.move_on_after(START_DEADLINE_S), contextlib.suppress(SandboxLost):
            channel = await unix_channel.connect(place.socket)
            try:
                answered = await channel.receive() != b""
            finally:
                await channel.aclose()
        if not answered:
            await to_thread.run_sync(place.kill)
            raise StartFailed(f"the agent of sandbox {spec.id} did not start: {state_files.last_words(place.log)}")


def _make_private(folder: str) -> None:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as exc:
        why = f"the data folder {folder} cannot be made: {exc.strerror}"
        raise EngineUnavailable(f"{why}; choose another with WARREN_DATA_DIR") from exc
