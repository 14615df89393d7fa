"""Counters, read from descriptors as the operating system writes them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from warren.guest.system.facts import Counts, Facts

if TYPE_CHECKING:
    from pathlib import Path


def _open(folder: Path, **contents: str) -> dict[str, int]:
    found = {}
    for name, text in contents.items():
        (folder / name).write_text(text)
        found[name] = os.open(folder / name, os.O_RDONLY)
    return found


def test_counters_of_either_cgroup_version_are_read_again_each_time(tmp_path: Path) -> None:
    v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
    fds = _open(tmp_path, memory_oom=v1, pids_events="max 7\n", memory_peak="4096\n", pids_now="12\n")
    facts = Facts(fds, str(tmp_path))
    assert facts.counts() == Counts(oom_kills=3, pids_refused=7)

    (tmp_path / "memory_oom").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 4\noom_group_kill 1\n")

    assert facts.counts() == Counts(oom_kills=4, pids_refused=7)
    assert facts.read("memory_peak") == 4096
    assert facts.read("pids_now") == 12
    for fd in fds.values():
        os.close(fd)


def test_what_is_not_counted_here_is_none(tmp_path: Path) -> None:
    facts = Facts({"memory_peak": 1 << 20}, str(tmp_path))

    assert facts.counts() == Counts(oom_kills=None, pids_refused=None)
    assert facts.read("memory_peak") is None


def test_disks_are_measured_where_user_code_can_write(tmp_path: Path) -> None:
    disks = Facts({}, str(tmp_path)).disks()

    assert disks[0].path == str(tmp_path)
    assert 0 <= disks[0].free_bytes <= disks[0].total_bytes
