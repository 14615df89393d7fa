"""Loop devices that came because of us are removed when nobody uses them; others are left alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from warren.engines.local import loop_devices

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has loop devices")
def test_a_device_in_use_stays_and_an_unused_one_that_was_not_there_before_goes(tmp_path: Path) -> None:
    before = loop_devices.numbers()
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    with open(tmp_path / "disk", "r+b") as file:
        device, path = loop_devices.attach(file.fileno())
    number = int(path.removeprefix("/dev/loop"))

    loop_devices.remove_unused(before - {number})
    assert number in loop_devices.numbers()
    os.close(device)
    if number not in before:
        loop_devices.remove_unused(before)
        assert number not in loop_devices.numbers()
    assert before <= loop_devices.numbers() | {number}
