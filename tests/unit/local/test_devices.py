"""Device nodes that are handed over, and control groups that let nothing else be opened: on v1 and on v2, for real."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from unit.local.forked import errno_of, needs_root, run_in_child
from warren.domain.errors import EngineUnavailable, Unsupported
from warren.engines.local.linux import control_files, device_filter, devices
from warren.engines.local.linux.device_filter import STANDARD, Rule
from warren.engines.local.linux.devices import DeviceControl, Needs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.root, needs_root]

FUSE, LOOP = os.makedev(10, 229), os.makedev(7, 0)


PLACES = {"v2" if place.unified else "v1": place for place in devices.find_places()} if os.geteuid() == 0 else {}


@pytest.fixture
def nodes(tmp_path: Path) -> dict[str, str]:
    """Device nodes that all users may open: of a harmless character device, of a loop device, and a standard one."""
    made = {"fuse": (stat.S_IFCHR, FUSE), "loop": (stat.S_IFBLK, LOOP), "null": (stat.S_IFCHR, os.makedev(1, 3))}
    for name, (kind, number) in made.items():
        os.mknod(tmp_path / name, 0o666 | kind, number)
        os.chmod(tmp_path / name, 0o666)
    return {name: str(tmp_path / name) for name in made}


def open_and_close(path: str) -> None:
    os.close(os.open(path, os.O_RDWR))


@contextlib.contextmanager
def group(place: devices.ControlPlace, rules: tuple[Rule, ...]) -> Iterator[str]:
    folder = f"{place.own}/warren-test-{os.getpid()}"
    devices.make_group(place, folder, rules)
    try:
        yield folder
    finally:
        control_files.remove_group(folder)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_group_opens_what_it_is_allowed_and_nothing_else(version: str, nodes: dict[str, str], tmp_path: Path) -> None:
    if version not in PLACES:
        pytest.skip(f"this host has no cgroup {version} that controls devices")

    def attempt() -> dict[str, int]:
        control_files.write(f"{folder}/cgroup.procs", "0")
        standard = {name: f"/dev/{name}" for name in ("zero", "full", "urandom", "ptmx")}
        opened = {name: errno_of(open_and_close, path) for name, path in (nodes | standard).items()}
        made = errno_of(os.mknod, tmp_path / "made", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        return opened | {"mknod": made}

    with group(PLACES[version], STANDARD) as folder:
        confined = run_in_child(attempt)
    with group(PLACES[version], (*STANDARD, Rule(10, 229))) as folder:
        with_fuse = run_in_child(attempt)

    fine = dict.fromkeys(("null", "zero", "full", "urandom", "ptmx"), 0)
    refused = dict.fromkeys(("loop", "mknod"), errno.EPERM)
    assert confined == fine | refused | {"fuse": errno.EPERM}
    assert with_fuse == fine | refused | {"fuse": 0}


def test_the_layer_holds_here_by_trial() -> None:
    assert devices.try_control() is None
    assert not [name for place in PLACES.values() for name in os.listdir(place.own) if name.startswith("warren-probe-")]


def test_the_program_is_whole_instructions_and_refuses_at_its_end() -> None:
    program = device_filter.build_program([Rule(195, 0), Rule(195, 0), Rule(136, None)])
    instructions = [program[at : at + 8] for at in range(0, len(program), 8)]

    assert len(program) % 8 == 0
    assert instructions[-2:] == [b"\xb7\0\0\0\0\0\0\0", b"\x95\0\0\0\0\0\0\0"]
    # Twice the same rule is one: four instructions where the minor counts, three where it does not.
    assert len(instructions) == 11 + 4 + 3 + 2


def needs(*hosts: str) -> Needs:
    return Needs(ids=("example.com/gpu=0",), nodes=tuple(("/dev/example0", host) for host in hosts), driver={})


def test_what_is_handed_over_is_a_character_device_and_the_rule_for_it(nodes: dict[str, str]) -> None:
    handed = devices.hand_over(needs(nodes["fuse"]))
    try:
        assert handed.rules == (Rule(10, 229),)
        assert os.fstat(handed.fds[0]).st_rdev == FUSE
    finally:
        handed.close()


def test_nothing_but_a_character_device_is_handed_over(nodes: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("secret")
    before = os.listdir("/proc/self/fd")

    for path in (nodes["loop"], str(tmp_path / "file"), str(tmp_path), str(tmp_path / "gone")):
        with pytest.raises(OSError, match=r"not a character device|No such file"):
            devices.hand_over(needs(nodes["fuse"], path))
    assert len(os.listdir("/proc/self/fd")) == len(before)


def control(**changed: bool) -> DeviceControl:
    return DeviceControl("warren-test", **{"is_root": True, "holds": True, "is_optional": False, **changed})


def test_where_the_layer_does_not_hold_gpus_are_refused_unless_it_is_optional() -> None:
    with pytest.raises(EngineUnavailable, match="layer devices does not hold here, so no sandbox is given a GPU"):
        control(holds=False).check()
    with pytest.raises(Unsupported, match="GPUs need Warren to run as root"):
        control(is_root=False, is_optional=True).check()
    control(holds=False, is_optional=True).check()
    control().check()


def test_a_group_that_is_not_the_sandboxs_own_gets_no_filter(nodes: dict[str, str]) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(reader, 1)
        os._exit(errno_of(os.open, nodes["fuse"], os.O_RDWR))
    made = control().confine(pid, "not-the-name-of-its-group", ())
    os.write(writer, b"x")
    _, status = os.waitpid(pid, 0)
    ours = errno_of(open_and_close, nodes["fuse"])
    control().release(made)
    os.close(reader)
    os.close(writer)

    assert os.waitstatus_to_exitcode(status) == errno.EPERM
    assert os.path.basename(made) == "not-the-name-of-its-group"
    assert ours == 0
    assert not os.path.exists(os.path.dirname(made))


def test_a_process_that_ended_before_it_was_confined_leaves_no_group() -> None:
    name = f"warren-test-{os.getpid()}"
    with subprocess.Popen(["true"]) as ended:
        pass
    with pytest.raises(OSError, match="No such"):
        DeviceControl(name, is_root=True, holds=True, is_optional=False).confine(ended.pid, "g1", ())

    assert not os.path.exists(f"{devices.find_place().own}/{name}.devices")


def test_sets_of_devices_with_variables_of_their_own_come_from_one_zygote() -> None:
    driver = {"libraries": ["/usr/lib/libexample.so.1"], "programs": []}
    plain = {"ids": ["example.com/gpu=0"], "nodes": [], "main": []}
    keys = {devices.Needs.parse({**plain, **driver, "env": {"DEVICE": name}}).key for name in "abc"}

    assert len(keys) == 1
