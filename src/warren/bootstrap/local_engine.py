"""The embedded engine of this machine, for commands that ask more of it than the seam of all engines has."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from warren.bootstrap.app import build_catalog
from warren.domain.errors import ConfigError, EngineUnavailable, InvalidRequest
from warren.engines.local.engine import LocalEngine
from warren.engines.local.linux.host import Host, describe
from warren.engines.local.probe import layers as probe
from warren.engines.local.probe.layers import Layer
from warren.engines.local.probe.repairs import PROGRAM_FOLDERS, Repair, apply, plan_repairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warren.settings import Settings

__all__ = ["PROGRAM_FOLDERS", "Examined", "Host", "Layer", "Repair", "apply_repairs", "examine_host", "find_gpus"]
__all__ += ["plan_repairs", "remove_image", "retire_engine"]

_SHOWN = ("id", "model", "aliases", "usable", "why")


@dataclasses.dataclass(frozen=True, slots=True)
class Examined:
    """A host, and which layers of isolation hold there."""

    host: Host
    place: str
    """Where control groups are made, in words; empty where that is not known."""
    layers: tuple[Layer, ...]
    missing: tuple[Layer, ...]
    """Those without which no sandbox is made."""
    optional: frozenset[str]


def examine_host(settings: Settings) -> Examined:
    """Try every layer of isolation on this host. Raises ConfigError where the settings name one that there is not."""
    from warren.engines.local.probe.examine import examine

    try:
        probe.check_names(settings.optional_layers)
    except InvalidRequest as exc:
        raise ConfigError(str(exc)) from exc
    optional = probe.WITHOUT_ASKING.union(settings.optional_layers)
    found = examine()
    return Examined(describe(), found.place, found.layers, tuple(probe.find_missing(found.layers, optional)), optional)


def apply_repairs(repairs: Sequence[Repair], *, sudo: str) -> None:
    """Run the commands that make layers hold. Raises EngineUnavailable."""
    try:
        apply(repairs, sudo=sudo)
    except RuntimeError as exc:
        raise EngineUnavailable(str(exc)) from exc


def find_gpus(settings: Settings, layers: Iterable[Layer]) -> dict[str, Any]:
    """Return the GPUs of this host, each opened to see whether it can be, and a sentence for each unusable CDI spec."""
    from warren.engines.gpus.inventory import find
    from warren.engines.local.gpus import list_gpus, why_refused

    inventory = find(settings.gpus.cdi_dirs)
    refused = why_refused({layer.name for layer in layers if layer.holds}, settings.optional_layers)
    devices = [dataclasses.asdict(gpu) for gpu in list_gpus(inventory, (), refused)]
    return {"devices": [{name: gpu[name] for name in _SHOWN} for gpu in devices], "problems": list(inventory.problems)}


async def retire_engine(settings: Settings, with_sandboxes: bool) -> None:
    """End what the engine keeps warm, and its sandboxes if asked to; nothing happens where nothing runs."""
    # What ends sandboxes needs no layer: they must be stoppable where they could not be made any more.
    optional = probe.NAMES if with_sandboxes else settings.optional_layers
    engine = LocalEngine(settings.data_dir, optional_layers=optional, debug=settings.debug)
    if with_sandboxes:
        await engine.open()
        async for handle in engine.handles():
            await engine.stop(handle)
    await engine.retire()


async def remove_image(settings: Settings, name: str, *, stale: bool) -> int:
    """Delete the builds of an image, or the stale ones, and return the bytes freed."""
    engine = LocalEngine(settings.data_dir)
    freed = build_catalog(settings).remove(name, stale_only=stale, in_use=await engine.images_in_use())
    if freed:
        # What is kept warm has the files open that are gone now.
        await engine.retire()
    return freed
