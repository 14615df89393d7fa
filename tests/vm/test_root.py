"""Root, at a terminal, in a scope and in a plain service: sandboxes are made, and every limit holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from vm.programs import check_memory, check_nothing_left, check_the_rest, warren_run

if TYPE_CHECKING:
    from vm.console import Console

WAYS = {
    "login shell": "",
    "delegated scope": "systemd-run --quiet --scope -p Delegate=yes",
    "plain service": "systemd-run --quiet --pipe --wait",
}

_OWN = "g=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup);"
GROUPS = {
    "fresh group": "",
    # As an attempt leaves it that stops halfway: both can be had beside processes, memory cannot.
    "group that was shared out": f"{_OWN} mkdir $g/left; echo +cpu +pids > $g/cgroup.subtree_control;",
}

CAUSES = {
    "pids": "import os, time\nwhile True:\n    if os.fork() == 0:\n        time.sleep(600)\n        os._exit(0)",
    "disk": "open('big', 'wb').write(bytes(1 << 27))",
}


def test_the_doctor_finds_every_layer_from_a_login_shell(root: Console) -> None:
    said = root.run("warren doctor", 30)

    assert said.code == 0, said


@pytest.mark.parametrize("way", WAYS)
def test_a_program_runs_within_its_limits_from_a(way: str, root: Console) -> None:
    """Each from a keeper that was started there, by the first of them."""
    root.run("warren stop-engine")

    ran = warren_run(root, "print(1)", before=WAYS[way])

    assert (ran.code, ran.output) == (0, "1"), ran
    check_memory(root, WAYS[way])
    check_the_rest(root, WAYS[way])


@pytest.mark.parametrize("cause", CAUSES)
def test_a_program_that_fails_at_a_limit_is_told_that_it_was(cause: str, root: Console) -> None:
    ended = warren_run(root, CAUSES[cause], "--disk", "64M", "--json")

    assert (ended.code, json.loads(ended.output)["cause"]) == (1, cause), ended


@pytest.mark.parametrize("group", GROUPS)
def test_a_limit_of_memory_holds_without_cpu_and_pids_in_a(group: str, root: Console) -> None:
    root.run("warren stop-engine")
    scope = "WARREN_OPTIONAL_LAYERS=cpu,pids systemd-run --quiet --scope -p Delegate=yes"

    check_memory(root, f"{scope} bash -c '{GROUPS[group]} exec \"$@\"' bash")


def test_nothing_is_left_when_the_engine_has_been_stopped(root: Console) -> None:
    created = root.run("warren sandbox create --quiet", 30)
    assert created.code == 0, created

    stopped = root.run("warren stop-engine --sandboxes", 30)

    assert stopped.code == 0, stopped
    check_nothing_left(root)
