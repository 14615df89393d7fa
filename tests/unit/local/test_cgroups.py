"""Control groups, made for real where this host lets us, and on a folder that looks like v2 where it has none."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from warren.engines.local.linux import cgroup_hierarchies
from warren.engines.local.linux.cgroup import Group, GroupLimits
from warren.engines.local.linux.cgroup_hierarchies import Search
from warren.engines.local.linux.cgroups import Cgroups

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
LIMITS = GroupLimits(memory_bytes=64 * MIB, cpus=0.5, pids=16)


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    found = Cgroups(*cgroup_hierarchies.find(Search(f"warren-test-{secrets.token_hex(4)}")))
    if found.missing:
        found.remove_all()
        pytest.skip(f"no control groups for us here: {found.missing}")
    yield found
    found.remove_all()


@pytest.fixture
def group(cgroups: Cgroups) -> Group:
    return cgroups.make("g1", LIMITS)


def _join(group: Group) -> None:
    group.add(os.getpid())


def _start(group: Group, code: str) -> subprocess.Popen[bytes]:
    """Start Python in the group; it has written one line when this returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"print(flush=True)\n{code}"],
        preexec_fn=lambda: _join(group),  # noqa: PLW1509 - there is one thread
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _finish(process: subprocess.Popen[bytes]) -> int:
    with process:
        return process.wait(30)


def _field(descriptor: int, name: str) -> int:
    words = os.pread(descriptor, 4096, 0).decode().split()
    return int(words[words.index(name) + 1])


def test_a_group_is_made_listed_and_removed_twice(cgroups: Cgroups) -> None:
    group = cgroups.make("g1", LIMITS)
    made = cgroups.names()
    group.remove()
    group.remove()

    assert made == ["g1"]
    assert cgroups.names() == []


def test_a_name_that_is_taken_is_refused_and_the_first_group_stays(cgroups: Cgroups, group: Group) -> None:
    with pytest.raises(FileExistsError):
        cgroups.make("g1", LIMITS)

    assert cgroups.names() == ["g1"]
    assert group.usage().pids == 0


def test_a_group_that_is_there_in_one_hierarchy_only_is_refused_and_nothing_is_added(cgroups: Cgroups) -> None:
    folders = sorted({f"{place.folder}/g1" for place in cgroups._places.values()})
    os.mkdir(folders[-1])

    with pytest.raises(FileExistsError):
        cgroups.make("g1", LIMITS)
    assert [folder for folder in folders if os.path.exists(folder)] == folders[-1:]


def test_a_program_that_takes_too_much_memory_is_killed_and_the_counter_says_so(group: Group) -> None:
    facts = group.facts()
    try:
        status = _finish(_start(group, "b = bytearray(200 << 20)"))

        assert status == -signal.SIGKILL
        assert _field(facts["memory_oom"], "oom_kill") == 1
        assert int(os.pread(facts["memory_peak"], 64, 0)) <= LIMITS.memory_bytes
    finally:
        for descriptor in facts.values():
            os.close(descriptor)


def test_a_raised_limit_lets_the_same_program_live(group: Group) -> None:
    group.resize(GroupLimits(memory_bytes=512 * MIB, cpus=1, pids=16))

    assert _finish(_start(group, "b = bytearray(200 << 20)")) == 0
    assert (group.usage().memory_peak_bytes or 0) > 200 * MIB


def test_too_many_processes_are_refused_and_counted(group: Group) -> None:
    code = (
        "import os\ntry:\n    while os.fork(): pass\nexcept BlockingIOError: os._exit(7)\nimport signal; signal.pause()"
    )
    facts = group.facts()
    process = _start(group, code)
    try:
        assert process.wait(30) == 7
        assert int(os.pread(facts["pids_now"], 64, 0)) == LIMITS.pids - 1
        assert _field(facts["pids_events"], "max") >= 1
    finally:
        group.kill()
        process.communicate()
        for descriptor in facts.values():
            os.close(descriptor)


def test_processor_time_is_limited_and_counted(group: Group) -> None:
    group.resize(GroupLimits(memory_bytes=64 * MIB, cpus=0.1, pids=16))
    spin = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass"

    assert _finish(_start(group, spin)) == 0
    assert 50_000 < (group.usage().cpu_us or 0) < 400_000


def test_kill_ends_a_fork_bomb_and_everything_in_the_group(group: Group) -> None:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except BlockingIOError: pass"
    process = _start(group, bomb)
    group.kill()
    process.communicate()

    assert group.pids() == []
    assert process.returncode == -signal.SIGKILL


def test_remove_all_leaves_nothing(cgroups: Cgroups) -> None:
    process = _start(cgroups.make("g1", LIMITS), "import signal; signal.pause()")
    cgroups.make("g2", LIMITS)
    cgroups.remove_all()
    process.communicate()

    assert cgroups.names() == []
    assert [place.folder for place in cgroups._places.values() if os.path.exists(place.folder)] == []


def test_a_process_is_moved_into_a_group_from_outside(group: Group) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        before = group.has(process.pid)
        group.add(process.pid)

        assert (before, group.has(process.pid), group.has(os.getpid())) == (False, True, False)


def test_more_processors_than_the_group_above_has_are_cut_to_what_it_has(tmp_path: Path) -> None:
    for name, quota in (("top", "-1"), ("top/warren", "50000"), ("top/warren/g1", "-1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpu.cfs_quota_us").write_text(quota)
        (tmp_path / name / "cpu.cfs_period_us").write_text("100000")
    place = cgroup_hierarchies.ControllerFolder(str(tmp_path / "top" / "warren"), unified=False)
    Cgroups({"cpu": place}, {}).group("g1").resize(GroupLimits(memory_bytes=1, cpus=64, pids=1))

    assert (tmp_path / "top/warren/g1/cpu.cfs_quota_us").read_text() == "50000"


def _write_files(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def test_v2_limits_and_counters_are_written_and_read_in_its_own_files(tmp_path: Path) -> None:
    place = cgroup_hierarchies.ControllerFolder(str(tmp_path), unified=True)
    counters = {
        "memory.current": "5\n",
        "memory.peak": "9\n",
        "pids.current": "2\n",
        "cpu.stat": "usage_usec 77\nx 1\n",
    }
    files = dict.fromkeys(("memory.max", "memory.swap.max", "cpu.max", "pids.max"), "")
    _write_files(tmp_path / "g1", {**counters, **files, "memory.events": "oom_kill 3\n", "pids.events": "max 4\n"})
    group = Cgroups(dict.fromkeys(("memory", "cpu", "pids"), place), {}).group("g1")
    group.resize(LIMITS)
    usage = group.usage()
    facts = group.facts()

    assert [(tmp_path / "g1" / name).read_text() for name in files] == [str(64 * MIB), "0", "50000 100000", "16"]
    assert (usage.memory_bytes, usage.memory_peak_bytes, usage.cpu_us, usage.pids) == (5, 9, 77, 2)
    assert _field(facts["memory_oom"], "oom_kill") == 3
    assert _field(facts["pids_events"], "max") == 4
    for descriptor in facts.values():
        os.close(descriptor)


def _open(folder: Path) -> Cgroups:
    return Cgroups.open(Search(f"warren-test-{folder.stat().st_ino:x}"), str(folder / "cgroups.json"))


def test_groups_in_use_are_found_again_and_others_are_made_anew(tmp_path: Path) -> None:
    first = _open(tmp_path)
    if first.missing:
        first.remove_all()
        pytest.skip(f"no control groups for us here: {first.missing}")
    process = _start(first.make("g1", LIMITS), "import signal; signal.pause()")
    try:
        again = _open(tmp_path)
        found, where = again.names(), again.places
    finally:
        first.group("g1").kill()
        process.communicate()
    first.make("g2", LIMITS)
    fresh = _open(tmp_path)
    left = fresh.names()
    fresh.remove_all()

    assert (found, where, again.missing) == (["g1"], first.places, {})
    assert left == []


def test_groups_in_use_that_lack_a_controller_are_not_taken_for_whole(tmp_path: Path) -> None:
    first = _open(tmp_path)
    if first.missing:
        first.remove_all()
        pytest.skip(f"no control groups for us here: {first.missing}")
    first.drop("memory", "not wanted")
    noted = {name: {"folder": place.folder, "unified": place.unified} for name, place in first.places.items()}
    (tmp_path / "cgroups.json").write_text(json.dumps(noted))
    process = _start(first.make("g1", LIMITS), "import signal; signal.pause()")
    try:
        again = _open(tmp_path)
    finally:
        first.remove_all()
        process.communicate()

    assert "memory" not in again.places
    assert "warren stop-engine --sandboxes" in again.missing["memory"]


def test_a_note_that_came_with_a_copy_of_a_data_folder_is_not_followed(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    copy.mkdir()
    first = _open(original)
    if first.missing:
        first.remove_all()
        pytest.skip(f"no control groups for us here: {first.missing}")
    process = _start(first.make("g1", LIMITS), "import signal; signal.pause()")
    (copy / "cgroups.json").write_text((original / "cgroups.json").read_text())
    try:
        other = _open(copy)
        seen = other.names()
        other.remove_all()
        is_alive = process.poll() is None
    finally:
        first.remove_all()
        process.communicate()

    assert (seen, is_alive) == ([], True)


def test_groups_of_an_earlier_version_are_found_by_their_shorter_name(tmp_path: Path) -> None:
    first = Cgroups.open(Search(f"warren-test{os.getpid()}"), str(tmp_path / "cgroups.json"))
    if first.missing:
        first.remove_all()
        pytest.skip(f"no control groups for us here: {first.missing}")
    process = _start(first.make("g1", LIMITS), "import signal; signal.pause()")
    try:
        again = Cgroups.open(Search(f"warren-test{os.getpid()}-fd00"), str(tmp_path / "cgroups.json"))
    finally:
        first.remove_all()
        process.communicate()

    assert again.places == first.places


def test_a_controller_that_was_dropped_leaves_no_group_behind(cgroups: Cgroups) -> None:
    folders = sorted({place.folder for place in cgroups.places.values()})
    process = _start(cgroups.make("g1", LIMITS), "import signal; signal.pause()")
    for controller in ("memory", "cpu", "pids"):
        cgroups.drop(controller, "the trial failed")
    cgroups.remove_all()
    process.communicate()

    assert process.returncode == -signal.SIGKILL
    assert [folder for folder in folders if os.path.exists(folder)] == []
