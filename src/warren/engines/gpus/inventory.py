"""GPU inventory: which GPUs this host has, whether each can be opened, and what a sandbox needs to use one.

They come from CDI specs, or where none names an NVIDIA GPU, from the NVIDIA devices and libraries of this host. Specs
belong to the operator: the service reads them, no program of a sandbox does, and none is taken from a caller.
"""

from __future__ import annotations

import dataclasses
import os
import stat
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.domain.gpus import Gpu
from warren.engines.gpus import cdi, nvidia

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from warren.engines.gpus.cdi import CdiDevice, Edits, Node

TRIED_S = 60.0
"""How long a trial of all devices is valid. WHY: without persistence mode, opening an idle GPU takes a second."""
MAX_LIBRARIES = 128
_LINKS = 4
_OURS = frozenset({"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONHOME"})
"""Variables that a spec must not set."""


@dataclass(frozen=True, slots=True)
class Found:
    """A GPU of this host."""

    gpu: Gpu
    edits: Edits
    """What a sandbox needs to use it, without device nodes that it cannot open."""
    main: str
    """Its own device node."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """All GPUs of this host."""

    found: tuple[Found, ...] = ()
    problems: tuple[str, ...] = ()
    """A sentence for each spec that could not be used."""

    def list_gpus(self, sandboxes: Iterable[Mapping[str, Any]], refused: str) -> tuple[Gpu, ...]:
        """Return the GPUs with how many running sandboxes have each; none is usable where `refused` has a reason."""
        held = Counter(name for each in sandboxes if each["state"] == "running" for name in each["gpus"])
        found = (dataclasses.replace(each.gpu, sandboxes=held[each.gpu.id]) for each in self.found)
        if not refused:
            return tuple(found)
        return tuple(dataclasses.replace(gpu, usable=False, why=refused) for gpu in found)

    def describe(self, ids: Iterable[str]) -> dict[str, Any]:
        """Build, as plain JSON, what a sandbox with these GPUs needs: nodes, libraries with links, programs."""
        known = {each.gpu.id: each for each in self.found}
        chosen = [known[name] for name in ids]
        edits = cdi.Edits()
        for each in chosen:
            edits += each.edits
        libraries = [path for path in edits.libraries if os.path.isfile(path)]
        return {
            "ids": [each.gpu.id for each in chosen],
            "main": [each.main for each in chosen],
            "nodes": [[node.path, os.path.realpath(node.host_path)] for node in edits.nodes],
            "libraries": [_library(path) for path in libraries[:MAX_LIBRARIES]],
            "programs": [path for path in edits.programs if os.path.isfile(path)],
            "env": {name: value for name, value in edits.env.items() if name not in _OURS},
        }


class GpuInventory:
    """Finds the GPUs, with a cache. Blocking: call it in a thread."""

    def __init__(self, folders: Iterable[str] = cdi.DIRS) -> None:
        self._folders = tuple(folders)
        self._known = Inventory()
        self._signature: tuple[object, ...] = ()
        self._tried_at = -TRIED_S

    def load(self) -> Inventory:
        """Return all GPUs; tried again when specs or devices change, or after TRIED_S."""
        signature = self._sign()
        if signature != self._signature or time.monotonic() - self._tried_at >= TRIED_S:
            self._known, self._signature, self._tried_at = find(self._folders), signature, time.monotonic()
        return self._known

    def _sign(self) -> tuple[object, ...]:
        signs: list[object] = []
        for folder in (*self._folders, "/dev"):
            try:
                # Of /dev only names: its time changes with every terminal.
                signs.append(
                    sorted(name for name in os.listdir("/dev") if name.startswith("nvidia"))
                    if folder == "/dev"
                    else [(entry.name, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in os.scandir(folder)]
                )
            except OSError:
                signs.append(None)
        return tuple(signs)


def find(folders: tuple[str, ...]) -> Inventory:
    """Find all devices of class `gpu`, and try to open each."""
    devices, problems = cdi.load_specs(folders)
    gpus = [device for device in devices if device.kind.endswith("/gpu")]
    if not any(device.kind == nvidia.KIND for device in gpus):
        spec = nvidia.describe()
        gpus += cdi.parse_spec(spec) if spec is not None else []
    cards = nvidia.find_cards()
    trial = _Trial()
    return Inventory(tuple(_found(group, cards, trial) for group in _same(gpus)), tuple(problems))


class _Trial:
    """Opens device nodes, each once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def why_not(self, node: Node, needed: int = stat.S_IROTH) -> str:
        """Return why a sandbox cannot open a device node with these rights; empty when it can."""
        if node.host_path not in self._known:
            self._known[node.host_path] = _try(node.host_path)
        return self._known[node.host_path] or _why_closed(node.host_path, needed)

    def keep(self, edits: Edits) -> Edits:
        """Remove the device nodes that a sandbox cannot open."""
        return dataclasses.replace(edits, nodes=tuple(node for node in edits.nodes if not self.why_not(node)))


def _try(path: str) -> str:
    try:
        found = os.stat(path)
        if not stat.S_ISCHR(found.st_mode):
            return f"{path} is not a character device"
        if closed := _why_closed(path, stat.S_IROTH):
            return closed
        how = os.O_RDWR if found.st_mode & stat.S_IWOTH else os.O_RDONLY
        os.close(os.open(path, how | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return f"{path} cannot be opened: {error.strerror}"
    return ""


def _why_closed(path: str, needed: int) -> str:
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & needed == needed:
        return ""
    return (
        f"{path} has mode {mode:04o}, and the user of a sandbox is neither its owner nor in its group: "
        "have udev give it 0666"
    )


def _same(devices: list[CdiDevice]) -> list[list[CdiDevice]]:
    """Group the names of each device: specs name it by number and by UUID, and `all` names all of them."""
    groups: dict[tuple[str, frozenset[Node]], list[CdiDevice]] = {}
    for device in devices:
        if device.name != "all" or not any(one.kind == device.kind and one.name != "all" for one in devices):
            groups.setdefault((device.kind, frozenset(device.own.nodes)), []).append(device)
    for group in groups.values():
        group.sort(key=lambda device: (not device.name.isdigit(), len(device.name), device.name))
    return list(groups.values())


def _found(group: list[CdiDevice], cards: dict[str, dict[str, str]], trial: _Trial) -> Found:
    device = group[0]
    nodes = device.own.nodes
    main = nodes[0] if nodes else None
    card = cards.get(main.host_path, {}) if main is not None else {}
    names = [name for each in group for name in (each.id, each.name)] + [card.get("uuid", "")]
    why = (
        trial.why_not(main, stat.S_IROTH | stat.S_IWOTH)
        if main is not None
        else "its CDI spec names no device node of its own"
    )
    gpu = Gpu(
        id=device.id,
        aliases=tuple(dict.fromkeys(name for name in names if name and name != device.id)),
        model=card.get("model", ""),
        usable=not why,
        why=why,
    )
    return Found(gpu, trial.keep(device.own + device.common), main.path if main is not None else "")


def _library(path: str) -> dict[str, Any]:
    """Describe a library with its other names in its folder: programs load it by one of those."""
    real, (folder, name) = os.path.realpath(path), os.path.split(path)
    stem = name.partition(".so")[0] + ".so"
    try:
        beside = sorted(each for each in os.listdir(folder) if each.startswith(stem) and each != name)
    except OSError:
        beside = []
    links = [each for each in beside if os.path.realpath(os.path.join(folder, each)) == real]
    # WHY: programs load libcuda.so.1; ldconfig makes that link, which is not run here.
    links += [f"{stem}.1"] if not links and name != f"{stem}.1" else []
    return {"path": real, "name": name, "links": links[:_LINKS]}
