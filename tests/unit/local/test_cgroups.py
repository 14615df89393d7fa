"""Control groups, made for real where this host lets us, and on a folder that looks like v2 where it has none."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from unit.local.forked import run_in_child
from warren.engines.local import hierarchies
from warren.engines.local.cgroups import Cgroups, Group, GroupLimits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
LIMITS = GroupLimits(memory_bytes=64 * MIB, cpus=0.5, pids=16)


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    found = Cgroups(*hierarchies.find(f"warren-test-{secrets.token_hex(4)}"))
    if found.missing:
        found.remove_all()
        pytest.skip(f"no control groups for us here: {found.missing}")
    yield found
    found.remove_all()


@pytest.fixture
def group(cgroups: Cgroups) -> Group:
    return cgroups.make("g1", LIMITS)


def _join(group: Group) -> None:
    for descriptor in group.procs_fds():
        os.write(descriptor, b"0")
        os.close(descriptor)


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


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root can give up its rights to a group")
def test_a_process_without_rights_can_wait_in_a_group_through_handed_descriptors(group: Group) -> None:
    descriptors = group.procs_fds()

    def attempt() -> bool:
        for descriptor in descriptors:
            os.write(descriptor, b"0")
        return os.getpid() in group.pids()

    try:
        assert run_in_child(attempt, uid=65534)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def test_more_processors_than_the_group_above_has_are_cut_to_what_it_has(tmp_path: Path) -> None:
    for name, quota in (("top", "-1"), ("top/warren", "50000"), ("top/warren/g1", "-1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpu.cfs_quota_us").write_text(quota)
        (tmp_path / name / "cpu.cfs_period_us").write_text("100000")
    place = hierarchies.Place(str(tmp_path / "top" / "warren"), unified=False)
    Cgroups({"cpu": place}, {}).group("g1").resize(GroupLimits(memory_bytes=1, cpus=64, pids=1))

    assert (tmp_path / "top/warren/g1/cpu.cfs_quota_us").read_text() == "50000"


def _write_files(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def test_v2_limits_and_counters_are_written_and_read_in_its_own_files(tmp_path: Path) -> None:
    place = hierarchies.Place(str(tmp_path), unified=True)
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


def test_a_controller_that_v2_does_not_offer_is_named_with_the_group(tmp_path: Path) -> None:
    _write_files(tmp_path, {"cgroup.controllers": "pids", "cgroup.subtree_control": "pids", "cgroup.procs": ""})
    _write_files(tmp_path / "warren", {"cgroup.procs": "", "cgroup.subtree_control": ""})
    places, missing = hierarchies.make_unified(str(tmp_path), "warren", ["memory", "pids"])

    assert list(places) == ["pids"]
    assert missing == {"memory": f"the memory controller is not delegated to {tmp_path}"}


def _unified_mount() -> str | None:
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        return next((line.split(" ")[4] for line in file if " - cgroup2 " in line), None)


@pytest.mark.skipif(os.geteuid() != 0 or _unified_mount() is None, reason="needs root and a mounted cgroup v2")
def test_on_v2_processes_of_the_own_group_move_down_so_that_controllers_can_be_shared_out() -> None:
    mount = _unified_mount()
    with open(f"{mount}/cgroup.controllers", encoding="ascii") as file:
        offered = file.read().split()
    with open(f"{mount}/cgroup.subtree_control", encoding="ascii") as file:
        shared = file.read().split()
    if not offered:
        pytest.skip("this cgroup v2 has no controller")
    own = f"{mount}/warren-test-{secrets.token_hex(4)}"

    def attempt() -> list[object]:
        with open(f"{own}/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")
        untouched = hierarchies.make_unified(own, "warren", [offered[0]], may_move=False)
        places, missing = hierarchies.make_unified(own, "warren", [offered[0]])
        with open("/proc/self/cgroup", encoding="ascii") as file:
            where = file.read().splitlines()[-1]
        return [untouched, list(places), missing, where.rpartition("/")[2]]

    os.mkdir(own)
    try:
        if offered[0] not in shared:
            with open(f"{mount}/cgroup.subtree_control", "w", encoding="ascii") as file:
                file.write(f"+{offered[0]}")
        assert run_in_child(attempt) == [[{}, {}], [offered[0]], {}, "warren.host"]
    finally:
        for name in ("warren.host", "warren", ""):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(f"{own}/{name}")
        if offered[0] not in shared:
            with open(f"{mount}/cgroup.subtree_control", "w", encoding="ascii") as file:
                file.write(f"-{offered[0]}")


@pytest.mark.parametrize("delegated", ["unit", "unit/service", ""])
def test_a_group_that_systemd_delegated_is_divided_and_not_the_one_in_it_that_we_were_started_in(
    tmp_path: Path, delegated: str
) -> None:
    own = tmp_path / "unit" / "service"
    own.mkdir(parents=True)
    if delegated:
        try:
            os.setxattr(tmp_path / delegated, "user.delegate", b"1")
        except OSError as error:
            pytest.skip(f"this file system keeps no attributes: {error.strerror}")

    expected = tmp_path / "unit" if delegated == "unit" else own
    assert hierarchies.find_delegated(str(own)) == str(expected)
