"""Where groups are made on cgroup v2, in groups of a real hierarchy; whole controllers are tried in tests/vm."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from unit.local.forked import run_in_child
from warren.engines.local.linux import cgroup_hierarchies, control_files, systemd
from warren.engines.local.linux.cgroup_hierarchies import Search

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _unified_mount() -> str | None:
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        return next((line.split(" ")[4] for line in file if " - cgroup2 " in line), None)


needs_v2 = pytest.mark.skipif(
    os.geteuid() != 0 or _unified_mount() is None, reason="needs root and a mounted cgroup v2"
)


class Tree:
    """A group `top` with a group `own` in it, and one controller that both are offered."""

    def __init__(self, mount: str) -> None:
        self.controller = control_files.read(f"{mount}/cgroup.controllers").split()[0]
        self.top = f"{mount}/warren-test-{secrets.token_hex(4)}"
        self.own = f"{self.top}/own"
        os.mkdir(self.top)
        os.mkdir(self.own)

    def shared(self, folder: str) -> list[str]:
        """List the controllers that a group shares out."""
        return control_files.read(f"{folder}/cgroup.subtree_control").split()

    def delegate(self) -> None:
        """Offer the controller to `own` too."""
        control_files.write(f"{self.top}/cgroup.subtree_control", f"+{self.controller}")

    def pids(self, folder: str) -> list[int]:
        """List the processes of a group."""
        return [int(line) for line in control_files.read(f"{folder}/cgroup.procs").split()]

    def make(self, search: Search, *, wanted: tuple[str, ...] = (), top: str = "") -> dict[str, object]:
        """Look for a place in a child that is in `own`; returns what it found and where it was then."""

        def attempt() -> dict[str, object]:
            control_files.write(f"{self.own}/cgroup.procs", "0")
            places, missing = cgroup_hierarchies.make_unified(
                top or self.top, self.own, search, wanted or (self.controller,)
            )
            with open("/proc/self/cgroup", encoding="ascii") as file:
                where = file.read().splitlines()[-1]
            return {
                "places": {name: place.folder for name, place in places.items()},
                "missing": missing,
                "where": where[where.index(os.path.basename(self.top)) :],
            }

        return dict(run_in_child(attempt))

    def remove(self) -> None:
        """Remove every group of it, the deepest first."""
        for folder, _, _ in os.walk(self.top, topdown=False):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(folder)


@pytest.fixture
def tree() -> Iterator[Tree]:
    mount = str(_unified_mount())
    offered = control_files.read(f"{mount}/cgroup.controllers").split()
    if not offered:
        pytest.skip("this cgroup v2 has no controller")
    shared = control_files.read(f"{mount}/cgroup.subtree_control").split()
    control_files.write(f"{mount}/cgroup.subtree_control", f"+{offered[0]}")
    tree = Tree(mount)
    yield tree
    tree.remove()
    if offered[0] not in shared:
        control_files.write(f"{mount}/cgroup.subtree_control", f"-{offered[0]}")


@needs_v2
def test_a_home_is_made_in_the_highest_group_that_can_be_divided_and_the_keeper_moves_into_it(tree: Tree) -> None:
    found = tree.make(Search("w1"))
    slice_ = f"{tree.top}/warren.slice"

    assert found["places"] == {tree.controller: f"{slice_}/w1/sandboxes"}
    assert found["missing"] == {}
    assert str(found["where"]).endswith("/warren.slice/w1/keeper")
    for folder in (tree.top, slice_, f"{slice_}/w1", f"{slice_}/w1/sandboxes"):
        assert tree.shared(folder) == [tree.controller], folder
    assert tree.shared(tree.own) == []


@needs_v2
def test_what_an_earlier_start_left_is_used_again(tree: Tree) -> None:
    first = tree.make(Search("w1"))

    assert tree.make(Search("w1")) == first
    # Started from a process that an earlier start had moved.
    tree.own = f"{tree.top}/warren.slice/w1/keeper"
    assert tree.make(Search("w1")) == first


@needs_v2
def test_a_group_with_the_processes_of_others_is_left_as_it_is(tree: Tree) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            control_files.write(f"{tree.own}/cgroup.procs", str(stranger.pid))
            found = tree.make(Search("w1"), top=tree.own)
            assert found["places"] == {}
            sentence = dict(found["missing"])[tree.controller]  # type: ignore[call-overload]
            assert f"not Warren's ({stranger.pid})" in sentence
            assert tree.pids(tree.own) == [stranger.pid]
            assert tree.shared(tree.own) == []
            assert [entry.name for entry in os.scandir(tree.own) if entry.is_dir()] == []
        finally:
            stranger.kill()


@needs_v2
def test_where_only_the_own_group_is_to_be_had_the_process_that_started_it_moves_too(tree: Tree) -> None:
    tree.delegate()
    with subprocess.Popen(["sleep", "60"]) as starter:
        try:
            control_files.write(f"{tree.own}/cgroup.procs", str(starter.pid))
            found = tree.make(Search("w1", starter=starter.pid), top=tree.own)
            assert found["places"] == {tree.controller: f"{tree.own}/warren.slice/w1/sandboxes"}
            assert tree.pids(f"{tree.own}/warren.slice/starter") == [starter.pid]
        finally:
            starter.kill()


@needs_v2
def test_a_container_that_sees_the_whole_hierarchy_stays_in_its_own_group(tree: Tree) -> None:
    tree.delegate()
    tree.own = f"{tree.top}/docker-{'0123456789abcdef' * 4}.scope"
    os.mkdir(tree.own)

    assert tree.make(Search("w1"))["places"] == {tree.controller: f"{tree.own}/warren.slice/w1/sandboxes"}


@needs_v2
def test_a_scope_is_divided_itself_and_only_if_it_is_the_one_that_was_asked_for(tree: Tree) -> None:
    tree.delegate()
    other = tree.make(Search("w1", scope="other.scope"))
    untouched = tree.shared(tree.own)
    asked = tree.make(Search("w1", scope="own"))

    assert "systemd made other.scope" in dict(other["missing"])[tree.controller]  # type: ignore[call-overload]
    assert untouched == []
    assert asked["places"] == {tree.controller: f"{tree.own}/sandboxes"}
    assert str(asked["where"]).endswith("/own/keeper")


@needs_v2
def test_where_systemd_gave_no_scope_nothing_is_divided(tree: Tree) -> None:
    found = tree.make(Search("w1", refusal="systemd gave no scope: it is tired"))

    assert (found["places"], found["missing"]) == ({}, {tree.controller: "systemd gave no scope: it is tired"})
    assert tree.shared(tree.top) == []


@needs_v2
def test_a_controller_that_is_not_offered_is_named_with_the_group_and_the_others_are_had(tree: Tree) -> None:
    found = tree.make(Search("w1"), wanted=(tree.controller, "tea"))

    assert list(dict(found["places"])) == [tree.controller]  # type: ignore[call-overload]
    assert found["missing"] == {"tea": f"the tea controller is not delegated to {tree.top}"}


@needs_v2
def test_leaving_removes_the_groups_around_a_place(tree: Tree) -> None:
    tree.make(Search("w1"))
    place = cgroup_hierarchies.ControllerFolder(f"{tree.top}/warren.slice/w1/sandboxes", unified=True)
    os.rmdir(place.folder)
    cgroup_hierarchies.leave(place)

    assert sorted(entry.name for entry in os.scandir(tree.top) if entry.is_dir()) == ["own"]


_COME_AND_GO = """
import os, sys
from warren.engines.local.linux import cgroup_hierarchies, control_files

top, own, controller = sys.argv[1:]
control_files.write(f"{own}/cgroup.procs", "0")
for _ in range(100):
    search = cgroup_hierarchies.Search(os.path.basename(own))
    places, missing = cgroup_hierarchies.make_unified(top, own, search, (controller,))
    assert not missing, missing
    control_files.write(f"{own}/cgroup.procs", "0")
    os.rmdir(places[controller].folder)
    cgroup_hierarchies.leave(places[controller])
"""


@needs_v2
def test_keepers_of_other_data_folders_come_and_go_at_the_same_time(tree: Tree) -> None:
    keepers = []
    for number in range(3):
        os.mkdir(f"{tree.top}/other{number}")
        argv = [sys.executable, "-c", _COME_AND_GO, tree.top, f"{tree.top}/other{number}", tree.controller]
        keepers.append(subprocess.Popen(argv, stderr=subprocess.PIPE))
    said = [keeper.communicate()[1].decode() for keeper in keepers]

    assert said == ["", "", ""]
    assert not os.path.exists(f"{tree.top}/warren.slice")


def test_a_scope_is_asked_for_by_a_name_of_its_own_in_the_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "systemd-run"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    if os.geteuid() != 0 and not os.path.exists(f"/run/user/{os.geteuid()}/systemd/private"):
        pytest.skip("no systemd user manager runs for this user")
    monkeypatch.setenv("PATH", str(tmp_path))
    first, second = (systemd.plan_scope("warren-1", "test") for _ in range(2))

    assert isinstance(first, systemd.Scope)
    assert isinstance(second, systemd.Scope)
    assert first.name != second.name
    assert str(program) in first.prefix
    assert {"--scope", "--slice=warren.slice", "--property=Delegate=yes", f"--unit={first.name}"} <= set(first.prefix)
    assert ("--user" in first.prefix) == (os.geteuid() != 0)


def test_without_systemd_run_the_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert systemd.plan_scope("warren-1", "test") == "systemd runs this host, but systemd-run is not installed"


def test_without_a_user_manager_the_sentence_says_so() -> None:
    if shutil.which("systemd-run") is None:
        pytest.skip("systemd-run is not installed (Debian: apt install systemd)")

    uid = 65534 if os.geteuid() == 0 else os.geteuid()
    if os.path.exists(f"/run/user/{uid}/systemd/private"):
        pytest.skip("a systemd user manager runs for this user")
    found = run_in_child(lambda: str(systemd.plan_scope("warren-1", "test")), uid=uid)

    assert found == f"no systemd user manager runs for uid {uid}"
