"""Unused loop devices that a keeper added are removed; others stay."""

from __future__ import annotations

import fcntl
import os
import threading
from typing import TYPE_CHECKING

import pytest

from warren.engines.local.linux import loop_devices

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has loop devices")


@pytest.fixture(autouse=True)
def before() -> Iterator[set[int]]:
    """The devices that were there; those that come are removed at the end."""
    there = loop_devices.numbers()
    yield there
    loop_devices.remove_unused(there)


def attach(folder: Path, name: str = "disk") -> tuple[int, int]:
    """Make a disk of a file; returns a descriptor of it, and its number."""
    (folder / name).write_bytes(bytes(1 << 20))
    with open(folder / name, "r+b") as file:
        device, path = loop_devices.attach(file.fileno())
    return device, int(path.removeprefix("/dev/loop"))


def is_unused(number: int) -> bool:
    """Return whether a device exists and is unused: other processes of this machine use theirs at the same time."""
    return number in loop_devices.numbers() and not os.path.exists(f"/sys/block/loop{number}/loop/backing_file")


def test_a_device_in_use_stays_and_of_the_unused_those_go_that_were_not_there_before(tmp_path: Path) -> None:
    (one, kept), (two, gone) = attach(tmp_path, "one"), attach(tmp_path, "two")
    loop_devices.remove_unused(loop_devices.numbers() - {kept, gone})
    assert {kept, gone} <= loop_devices.numbers()
    os.close(one)
    os.close(two)
    loop_devices.remove_unused(loop_devices.numbers() - {gone})
    assert kept in loop_devices.numbers()
    assert not is_unused(gone)


def test_nothing_is_removed_or_taken_between_the_naming_of_a_device_and_its_use(tmp_path: Path) -> None:
    device, number = attach(tmp_path)
    os.close(device)
    others = loop_devices.numbers() - {number}
    found: list[tuple[int, int]] = []
    threads = [
        threading.Thread(target=loop_devices.remove_unused, args=(others,)),
        threading.Thread(target=lambda: found.append(attach(tmp_path, "other"))),
    ]
    with open("/dev/loop-control", "rb") as control:
        fcntl.flock(control, fcntl.LOCK_EX)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(0.2)
        assert all(thread.is_alive() for thread in threads)
    for thread in threads:
        thread.join()
    os.close(found[0][0])
    loop_devices.remove_unused(others)
    assert not is_unused(number)
