"""What `warren doctor` says of GPUs: each is opened to see whether it can be."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warren.engines.local.probe.layers import Layer
    from warren.settings import Settings

_SHOWN = ("id", "model", "aliases", "usable", "why")


def find_gpus(settings: Settings, layers: Iterable[Layer]) -> dict[str, Any]:
    """Return the GPUs of this host, and a sentence for each CDI spec that cannot be used."""
    from warren.engines.gpus.inventory import find
    from warren.engines.local.linux.devices import why_refused

    inventory = find(settings.gpus.cdi_dirs)
    refused = why_refused({layer.name for layer in layers if layer.holds}, settings.optional_layers)
    devices = [dataclasses.asdict(gpu) for gpu in inventory.list_gpus((), refused)]
    return {"devices": [{name: gpu[name] for name in _SHOWN} for gpu in devices], "problems": list(inventory.problems)}


def print_gpus(gpus: dict[str, Any]) -> None:
    """Print a line for each."""
    for gpu in gpus["devices"]:
        what = f"{gpu['id']}{' (' + gpu['model'] + ')' if gpu['model'] else ''}"
        print(f"GPU {what} can be used." if gpu["usable"] else f"GPU {what} cannot be used: {gpu['why']}")
    if not gpus["devices"]:
        print("No GPU was found.")
    for problem in gpus["problems"]:
        print(f"{problem[0].upper()}{problem[1:]}")
