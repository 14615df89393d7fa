"""Layers of isolation: which of them hold on this host, each tried in a forked child."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from warren.domain.errors import EngineUnavailable, InvalidRequest
from warren.engines.local.linux import devices, landlock
from warren.engines.local.linux import host as hosts
from warren.engines.local.linux.fork_trial import Failure, attempt
from warren.engines.local.probe import remedies, trials

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warren.engines.local.linux.cgroups import Cgroups

NAMES = (
    *("user", "mount", "pid", "net", "ipc", "uts", "cgroup", "nesting", "proc"),
    *("seccomp", "landlock", "capabilities", "no_new_privs"),
    *("memory", "cpu", "pids", "disk", "uid", devices.LAYER),
)
"""All layers, by the names that operators use in optional_layers."""
WITHOUT_ASKING = frozenset({"landlock", "uid", devices.LAYER})
"""Layers that not every kernel or user has, on top of others that hold: used where possible, and recorded.

Without `devices` no sandbox gets a GPU, unless the operator names it optional; no other sandbox needs it.
"""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of isolation on this host."""

    name: str
    holds: bool
    detail: str
    """One phrase: what holds, or why it does not."""
    fix: str
    """The command that makes it hold; empty when it does."""
    stand_in: bool = False
    """Whether another mechanism than usual holds it, which `detail` names."""
    lacks: str = ""
    """A promise that this kernel cannot keep, whether or not the layer holds; empty when it keeps all."""


def check_names(optional: Iterable[str]) -> None:
    """Raise InvalidRequest for an optional layer that does not exist."""
    unknown = sorted(set(optional) - set(NAMES))
    if unknown:
        raise InvalidRequest(f"unknown layer {unknown[0]!r} in optional_layers: choose from {', '.join(NAMES)}")


def probe(cgroups: Cgroups) -> list[Layer]:
    """Try all layers; a controller that fails is dropped from `cgroups`."""
    return [
        *_probe_namespaces(),
        *_probe_restrictions(),
        *_probe_groups(cgroups),
        _probe_disk(),
        _probe_uid(),
        _layer(devices.LAYER, devices.try_control(), "a sandbox with GPUs opens no other device", devices.FIX),
    ]


def find_missing(layers: Iterable[Layer], optional: Iterable[str]) -> list[Layer]:
    """List the required layers that do not hold."""
    dispensable = WITHOUT_ASKING.union(optional)
    return [layer for layer in layers if not layer.holds and layer.name not in dispensable]


def require(layers: Iterable[Layer], optional: Iterable[str]) -> None:
    """Raise EngineUnavailable, with the remedy, when a required layer does not hold."""
    missing = find_missing(layers, optional)
    if missing:
        first, others = missing[0], ", ".join(layer.name for layer in missing[1:])
        more = f" (nor does {others}: `warren doctor` shows all)" if others else ""
        raise EngineUnavailable(f"layer {first.name} does not hold here{more}: {first.detail}; {first.fix}")


def list_caveats(layers: Iterable[Layer], optional: Iterable[str]) -> list[str]:
    """Describe the layers that are held by a stand-in, in part, or were given up by the operator."""
    given_up = frozenset(optional) - WITHOUT_ASKING
    found = list(layers)
    return [
        *(f"layer {layer.name}: {layer.detail}" for layer in found if layer.stand_in),
        *(f"layer {layer.name}: {layer.lacks}" for layer in found if layer.lacks),
        *(
            f"layer {layer.name} is given up (optional_layers), and does not hold: {layer.detail}"
            for layer in found
            if not layer.holds and layer.name in given_up
        ),
    ]


def _probe_namespaces() -> list[Layer]:
    layers = []
    for kind, act in trials.NAMESPACES.items():
        failure = attempt(act)
        fix = "" if failure is None else remedies.for_namespace("user" if kind == "nesting" else kind, failure.number)
        what = "a user namespace inside another" if kind == "nesting" else f"its own {kind} namespace"
        if kind == "mount" and (unusable := hosts.explain_unusable_root()):
            failure, fix = Failure(0, unusable), remedies.UNUSABLE_ROOT
        layers.append(_layer(kind, failure, what, fix))
    return [*layers, _layer("proc", attempt(trials.try_proc), "/proc of its own processes only", remedies.for_proc())]


def _probe_restrictions() -> list[Layer]:
    about_landlock, lacks = f"Landlock ABI {landlock.abi()}", landlock.describe_missing(landlock.abi())
    about_seccomp, about_capabilities = "system calls from an allow-list", "no capability in any set"
    no_new_privs = attempt(trials.try_no_new_privs)
    return [
        _layer("seccomp", attempt(trials.try_seccomp), about_seccomp, remedies.SECCOMP),
        replace(_layer("landlock", attempt(trials.try_landlock), about_landlock, remedies.LANDLOCK), lacks=lacks),
        _layer("capabilities", attempt(trials.try_capabilities), about_capabilities, remedies.for_namespace("user", 0)),
        _layer("no_new_privs", no_new_privs, "setuid programs gain nothing", "use kernel 3.5 or later"),
    ]


def _layer(name: str, failure: Failure | None, what: str, fix: str) -> Layer:
    if failure is None:
        return Layer(name, holds=True, detail=what, fix="")
    return Layer(name, holds=False, detail=failure.text, fix=fix)


def _probe_groups(cgroups: Cgroups) -> list[Layer]:
    """Try each controller where the groups of sandboxes will be, and drop those that do not hold."""
    layers = []
    for name, what in (("memory", "bytes"), ("cpu", "processor time"), ("pids", "number of tasks")):
        why = Failure(0, cgroups.missing[name]) if name in cgroups.missing else trials.try_controller(cgroups, name)
        if why is not None:
            cgroups.drop(name, why.text)
            detail = ""
        else:
            detail = f"{what} bounded by cgroup {'v2' if cgroups.places[name].unified else 'v1'}"
        if name == "pids" and why is not None and attempt(trials.try_task_limit) is None:
            detail = f"number of tasks bounded by RLIMIT_NPROC in place of a control group: {why.text}"
            layers.append(Layer(name, holds=True, detail=detail, fix="", stand_in=True))
        else:
            layers.append(_layer(name, why, detail, remedies.for_group(name)))
    return layers


def _probe_disk() -> Layer:
    if os.geteuid() != 0:
        detail = "workspaces in memory, bounded in bytes and files; persistent ones need root"
        return _layer("disk", attempt(trials.try_mount), detail, remedies.for_namespace("mount", 0))
    failure = attempt(trials.try_disk)
    return _layer(
        "disk", failure, "bytes and files bounded by a disk image", remedies.for_disk(failure.text if failure else "")
    )


def _probe_uid() -> Layer:
    if os.geteuid() != 0:
        detail = f"all sandboxes share uid {os.geteuid()} of this host"
        return Layer("uid", holds=False, detail=detail, fix=remedies.UID)
    failure = attempt(trials.try_uid)
    return _layer("uid", failure, "each sandbox has a host uid of its own", remedies.for_namespace("user", 0))
