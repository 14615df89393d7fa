"""Capabilities, dropped in a user namespace of a forked child."""

from __future__ import annotations

import errno
import os

from unit.local.forked import UNPRIVILEGED, enter_namespaces, errno_of, needs_root, run_in_child
from warren.engines.local.linux import capabilities, namespaces, syscalls


def _sets() -> dict[str, int]:
    with open("/proc/self/status", encoding="utf-8") as file:
        return {line[:6]: int(line.split()[1], 16) for line in file if line.startswith("Cap")}


def test_all_five_sets_are_empty_afterwards_and_a_second_time_changes_nothing() -> None:
    def attempt() -> list[object]:
        enter_namespaces(namespaces.CLONE_NEWUSER)
        before = capabilities.effective()
        capabilities.drop_all()
        capabilities.drop_all()
        return [before > 0, capabilities.effective(), _sets()]

    assert run_in_child(attempt) == [True, 0, dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0)]


def test_they_do_not_come_back_by_running_a_program_as_uid_0() -> None:
    def attempt() -> str:
        enter_namespaces(namespaces.CLONE_NEWUSER, inside_id=0)
        capabilities.drop_all()
        with os.popen("grep CapEff /proc/self/status") as stream:
            return stream.read().split()[1]

    assert int(run_in_child(attempt), 16) == 0


def test_what_needs_one_is_refused_afterwards() -> None:
    def attempt() -> int:
        enter_namespaces(namespaces.CLONE_NEWUSER | namespaces.CLONE_NEWUTS)
        capabilities.drop_all()
        return errno_of(syscalls.sethostname, "other")

    assert run_in_child(attempt) == errno.EPERM


@needs_root
def test_without_the_right_to_empty_the_bounding_set_it_raises() -> None:
    assert run_in_child(lambda: errno_of(capabilities.drop_all), uid=UNPRIVILEGED) == errno.EPERM
