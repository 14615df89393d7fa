"""The probe, as whoever runs the tests and as an ordinary user."""

from __future__ import annotations

import dataclasses
import os
import secrets

import pytest

from unit.local.forked import NOBODY, needs_root, run_in_child
from warren.engines.local import hierarchies, landlock, probe


def _as_dicts() -> list[dict[str, object]]:
    return [dataclasses.asdict(layer) for layer in probe.probe()]


def test_every_layer_is_tried_and_says_one_thing() -> None:
    layers = probe.probe()

    assert tuple(layer.name for layer in layers) == probe.NAMES
    assert all(layer.detail and bool(layer.fix) != layer.holds for layer in layers)


def _children() -> set[str]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="utf-8") as file:
        return set(file.read().split())


def test_it_leaves_no_group_no_file_and_no_process() -> None:
    before = _children()
    probe.probe()
    places, _ = hierarchies.find(f"warren-test-{secrets.token_hex(4)}")
    left = [name for place in places.values() for name in os.listdir(os.path.dirname(place.folder))]
    for place in set(places.values()):
        os.rmdir(place.folder)

    assert f"warren-probe-{os.getpid()}" not in left
    assert _children() <= before
    assert not [name for name in os.listdir("/tmp") if name.startswith(f"warren-probe-{os.getpid()}")]


@needs_root
def test_an_ordinary_user_has_namespaces_and_filters_but_no_uids_of_others() -> None:
    layers = {layer["name"]: layer for layer in run_in_child(_as_dicts, uid=NOBODY)}
    if not layers["user"]["holds"]:
        pytest.skip(f"this host gives users no namespaces: {layers['user']['detail']}")
    held = {name for name, layer in layers.items() if layer["holds"]}

    assert {"mount", "pid", "net", "ipc", "uts", "nesting", "proc", "seccomp", "capabilities", "pids", "disk"} <= held
    assert "uid" not in held
    assert "sudo" in layers["uid"]["fix"]


@needs_root
def test_a_limit_that_an_ordinary_user_cannot_set_comes_with_the_command_that_delegates_it() -> None:
    layers = {layer["name"]: layer for layer in run_in_child(_as_dicts, uid=NOBODY)}
    if layers["memory"]["holds"]:
        pytest.skip("this host delegates control groups to everybody")

    assert "cannot be made" in layers["memory"]["detail"]
    assert layers["memory"]["fix"]


def test_landlock_is_reported_as_the_kernel_has_it() -> None:
    layer = next(layer for layer in probe.probe() if layer.name == "landlock")

    assert layer.holds == (landlock.abi() >= landlock.MINIMUM_ABI)


def test_an_optional_layer_that_does_not_exist_is_named() -> None:
    with pytest.raises(RuntimeError, match="unknown layer 'netns' in optional_layers: choose from user, mount"):
        probe.probe(optional=["memory", "netns"])


def test_a_layer_that_this_process_may_not_use_is_found_missing() -> None:
    def attempt() -> dict[str, object]:
        from warren.engines.local import seccomp

        seccomp.install(seccomp.build_filter())
        return {layer.name: layer.holds for layer in probe.probe()}

    held = run_in_child(attempt)

    assert not any(held[name] for name in ("user", "mount", "pid", "net", "ipc", "uts", "cgroup", "nesting", "proc"))
    assert held["no_new_privs"]
