"""The probe, as the user of the tests and as an ordinary user."""

from __future__ import annotations

import dataclasses
import os
import secrets

import pytest

from unit.local.forked import UNPRIVILEGED, needs_root, run_in_child
from warren.domain.errors import InvalidRequest
from warren.engines.local.linux import cgroup_hierarchies, landlock
from warren.engines.local.linux.cgroup_hierarchies import Search
from warren.engines.local.linux.cgroups import Cgroups
from warren.engines.local.probe import layers as probe


def _probe() -> list[probe.Layer]:
    cgroups = Cgroups(*cgroup_hierarchies.find(Search(f"warren-test-{secrets.token_hex(4)}")))
    try:
        return probe.probe(cgroups)
    finally:
        cgroups.remove_all()


def _as_dicts() -> list[dict[str, object]]:
    return [dataclasses.asdict(layer) for layer in _probe()]


def test_every_layer_is_tried_and_says_one_thing() -> None:
    layers = _probe()

    assert tuple(layer.name for layer in layers) == probe.NAMES
    assert all(layer.detail and bool(layer.fix) != layer.holds for layer in layers)


def _children() -> set[str]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="utf-8") as file:
        return set(file.read().split())


def test_it_leaves_no_group_no_file_and_no_process() -> None:
    before = _children()
    cgroups = Cgroups(*cgroup_hierarchies.find(Search(f"warren-test-{secrets.token_hex(4)}")))
    probe.probe(cgroups)
    left = cgroups.names()
    cgroups.remove_all()

    assert left == []
    assert [place.folder for place in cgroups.places.values() if os.path.exists(place.folder)] == []
    assert _children() <= before
    assert not [name for name in os.listdir("/tmp") if name.startswith(f"warren-probe-{os.getpid()}")]


@needs_root
@pytest.mark.parametrize("controller", ["memory", "cpu", "pids"])
def test_a_controller_that_does_not_hold_where_groups_are_made_is_missing_and_dropped(controller: str) -> None:
    places, missing = cgroup_hierarchies.find(Search(f"warren-test-{secrets.token_hex(4)}"))
    if missing or places[controller].unified:
        Cgroups(places, missing).remove_all()
        pytest.skip("only where each controller has a hierarchy of its own can one be taken for another")
    wrong = next(place for name, place in places.items() if name != controller)
    cgroups = Cgroups({**places, controller: wrong}, {})
    try:
        layers = {layer.name: layer for layer in probe.probe(cgroups)}
        left = cgroups.names()
    finally:
        cgroups.remove_all()
        Cgroups(places, {}).remove_all()

    assert controller not in cgroups.places
    assert [name for name in ("memory", "cpu", "pids") if not layers[name].holds] == [controller]
    assert left == []


@needs_root
def test_an_ordinary_user_has_namespaces_and_filters_but_no_uids_of_others() -> None:
    layers = {layer["name"]: layer for layer in run_in_child(_as_dicts, uid=UNPRIVILEGED)}
    if not layers["user"]["holds"]:
        pytest.skip(f"this host gives users no namespaces: {layers['user']['detail']}")
    held = {name for name, layer in layers.items() if layer["holds"]}

    assert {"mount", "pid", "net", "ipc", "uts", "nesting", "proc", "seccomp", "capabilities", "pids", "disk"} <= held
    assert "uid" not in held
    assert "sudo" in layers["uid"]["fix"]


@needs_root
def test_a_limit_that_an_ordinary_user_cannot_set_comes_with_the_command_that_delegates_it() -> None:
    layers = {layer["name"]: layer for layer in run_in_child(_as_dicts, uid=UNPRIVILEGED)}
    if layers["memory"]["holds"]:
        pytest.skip("this host delegates control groups to all users")

    detail = layers["memory"]["detail"]
    assert "cannot be made" in detail or "may not be written by uid" in detail, detail
    assert layers["memory"]["fix"]


def test_landlock_is_reported_as_the_kernel_has_it() -> None:
    layer = next(layer for layer in _probe() if layer.name == "landlock")

    assert layer.holds == (landlock.abi() >= landlock.MINIMUM_ABI)
    assert layer.lacks == landlock.describe_missing(landlock.abi())


@pytest.mark.parametrize(("abi", "what"), [(0, "write to"), (1, "write to"), (2, "signal"), (5, "signal")])
def test_an_old_kernel_is_said_to_leave_later_executions_open_to_older_ones(abi: int, what: str) -> None:
    layer = probe.Layer("landlock", holds=True, detail="", fix="", lacks=landlock.describe_missing(abi))

    (caveat,) = probe.list_caveats([layer], ())
    assert f"left running can {what} later executions" in caveat


def test_a_new_kernel_has_no_caveat_about_leftovers() -> None:
    assert landlock.describe_missing(6) == ""


def test_an_optional_layer_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidRequest, match="unknown layer 'netns' in optional_layers: choose from user, mount"):
        probe.check_names(["memory", "netns"])


def test_a_layer_that_this_process_may_not_use_is_found_missing() -> None:
    def attempt() -> dict[str, object]:
        from warren.engines.local.linux import seccomp

        seccomp.install(seccomp.build_filter())
        return {layer.name: layer.holds for layer in _probe()}

    held = run_in_child(attempt)

    assert not any(held[name] for name in ("user", "mount", "pid", "net", "ipc", "uts", "cgroup", "nesting", "proc"))
    assert held["no_new_privs"]
