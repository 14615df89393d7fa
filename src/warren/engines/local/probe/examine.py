"""Examines this host: tries each layer of isolation in a control group like the keeper's.

Run as `python -I -m warren.engines.local.probe.examine FOLDER`, started as the keeper is.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass

from warren.engines.local import spawn
from warren.engines.local.linux import cgroup_hierarchies
from warren.engines.local.linux.cgroups import Cgroups
from warren.engines.local.probe import layers as probe


@dataclass(frozen=True, slots=True)
class Examination:
    """The layers of this host, and its control groups."""

    layers: tuple[probe.Layer, ...]
    place: str
    """Where control groups are made, in words; or why none can be."""


def examine() -> Examination:
    """Try every layer as the keeper does, in a separate process."""
    with tempfile.TemporaryDirectory(prefix="warren-probe-") as folder, tempfile.NamedTemporaryFile() as log:
        found = spawn.run_module("warren.engines.local.probe.examine", folder, {}, log)
    return Examination(tuple(probe.Layer(**layer) for layer in found["layers"]), found["place"])


def describe_place(cgroups: Cgroups) -> str:
    """Describe where the groups of sandboxes are made."""
    found: dict[str, list[str]] = {}
    for controller, place in cgroups.places.items():
        if controller in cgroup_hierarchies.LIMIT_FILES:
            where = os.path.dirname(place.folder)
            found.setdefault(f"cgroup {'v2' if place.unified else 'v1'} at {where}", []).append(controller)
    if not found:
        return f"none: {next(iter(cgroups.missing.values()), 'no controller')}"
    if len(found) == 1:
        return next(iter(found))
    return ", ".join(f"{', '.join(controllers)}: {where}" for where, controllers in found.items())


def main(folder: str) -> None:
    """Print the result as JSON, and leave no group behind."""
    cgroups = Cgroups(*cgroup_hierarchies.find(spawn.read_search(folder, json.loads(sys.stdin.read()))))
    try:
        layers = probe.probe(cgroups)
        print(json.dumps({"layers": [asdict(layer) for layer in layers], "place": describe_place(cgroups)}))
    finally:
        cgroups.remove_all()


if __name__ == "__main__":
    main(sys.argv[1])
