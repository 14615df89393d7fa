"""GPUs as the local engine tells of them: what the host has, joined with what its sandboxes hold."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

from warren.engines.local.linux import devices

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from warren.domain.gpus import Gpu
    from warren.engines.gpus.inventory import Inventory


def list_gpus(inventory: Inventory, sandboxes: Iterable[Mapping[str, Any]], refused: str) -> tuple[Gpu, ...]:
    """Return the GPUs of an inventory, with how many running sandboxes have each; none is usable where `refused`."""
    held = Counter(name for each in sandboxes if each["state"] == "running" for name in each["gpus"])
    found = (dataclasses.replace(each.gpu, sandboxes=held[each.gpu.id]) for each in inventory.found)
    if not refused:
        return tuple(found)
    return tuple(dataclasses.replace(gpu, usable=False, why=refused) for gpu in found)


def why_refused(layers: Collection[str], optional: Collection[str]) -> str:
    """Say why no sandbox here is given a GPU; empty where they are."""
    if "uid" not in layers:
        return devices.ROOTLESS
    if devices.LAYER not in layers and devices.LAYER not in optional:
        return f"layer {devices.LAYER} does not hold here: {devices.FIX}"
    return ""
