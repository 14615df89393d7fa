"""All control groups of one data folder, in the hierarchies that hold our controllers."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Self

from warren.engines import state_files
from warren.engines.local.linux import cgroup_hierarchies, control_files
from warren.engines.local.linux.cgroup import Group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.engines.local.linux.cgroup import GroupLimits


class Cgroups:
    """The groups of one data folder."""

    def __init__(self, places: dict[str, cgroup_hierarchies.ControllerFolder], missing: dict[str, str]) -> None:
        self._places = dict(places)
        self._made = list(dict.fromkeys(places.values()))
        """Including those of dropped controllers: they are removed with the others."""
        self.missing = missing
        """Why a layer (memory, cpu, pids) cannot be limited here; empty when all can."""
        self.is_copied = False
        """Whether the state file came with a copy of another data folder: what its files name is not ours."""
        cpu = places.get("cpu")
        self._cpus_max = float("inf") if cpu is None or cpu.unified else _load_cpus_max(cpu.folder)

    @classmethod
    def open(cls, search: cgroup_hierarchies.Search, kept: str) -> Self:
        """Use the folders that an earlier keeper saved in `kept`, if its groups are in use; else make new ones.

        The earlier keeper may have run in another control group; its sandboxes are found in any case.
        """
        saved = {
            controller: cgroup_hierarchies.ControllerFolder(**place)
            for controller, place in state_files.load(kept).items()
        }
        is_copied = not all(cgroup_hierarchies.is_named(place, search.name) for place in saved.values())
        if is_copied:
            saved = {}
        earlier = cls(saved, {})
        if any(earlier.group(name).pids() for name in earlier.names()):
            for place in earlier._made:
                cgroup_hierarchies.enter(place)
            why = "sandboxes run in groups that were made without it; `warren stop-engine --sandboxes` ends them"
            earlier.missing |= {name: why for name in cgroup_hierarchies.LIMIT_FILES if name not in saved}
            return earlier
        with contextlib.suppress(OSError):
            earlier.remove_all()
        places, missing = cgroup_hierarchies.find(search)
        state_files.save(kept, {controller: asdict(place) for controller, place in places.items()})
        made = cls(places, missing)
        made.is_copied = is_copied
        return made

    @property
    def places(self) -> Mapping[str, cgroup_hierarchies.ControllerFolder]:
        """The folder of groups by controller; cpuacct only where v1 counts processor time apart."""
        return self._places

    def drop(self, controller: str, why: str) -> None:
        """Drop a controller that does not hold."""
        self._places.pop(controller, None)
        self.missing[controller] = why

    def make(self, group_name: str, limits: GroupLimits) -> Group:
        """Make a group, or nothing. Raises FileExistsError when it exists."""
        group = self.group(group_name)
        group.make(limits)
        return group

    def group(self, name: str, *, only: str = "") -> Group:
        """Return the group of that name, whether it exists or not; with `only`, as that controller sees it."""
        if only:
            return Group(name, {only: self._places[only]}, self._cpus_max)
        dropped = [place for place in self._made if place not in self._places.values()]
        return Group(name, self._places, self._cpus_max, dropped)

    def names(self) -> list[str]:
        """List all groups, including those that exist in only some hierarchies."""
        found: set[str] = set()
        for place in self._made:
            with contextlib.suppress(FileNotFoundError):
                found.update(entry.name for entry in os.scandir(place.folder) if entry.is_dir(follow_symlinks=False))
        return sorted(found)

    def remove_unused(self) -> None:
        """Remove the folder of the groups, if it is empty."""
        if not self.names():
            self.remove_all()

    def remove_all(self) -> None:
        """Kill and remove every group, and the folder that holds them."""
        for name in self.names():
            group = self.group(name)
            group.kill()
            group.remove()
        for place in self._made:
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(place.folder)
            cgroup_hierarchies.leave(place)


def _load_cpus_max(folder: str) -> float:
    """Return how many processors the parent groups allow: v1 refuses a group with more than its parent."""
    lowest = float("inf")
    while os.path.exists(f"{folder}/cpu.cfs_quota_us"):
        quota = int(control_files.read(f"{folder}/cpu.cfs_quota_us"))
        if quota > 0:
            lowest = min(lowest, quota / int(control_files.read(f"{folder}/cpu.cfs_period_us")))
        folder = os.path.dirname(folder)
    return lowest
