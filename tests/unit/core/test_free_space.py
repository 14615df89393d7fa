"""The watermark of the data disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from warren.core.policy.free_space import FreeSpace, Watermark
from warren.domain.errors import InsufficientStorage
from warren.domain.values import GIB

if TYPE_CHECKING:
    from pathlib import Path


def test_without_a_watermark_there_is_space(tmp_path: Path) -> None:
    FreeSpace(str(tmp_path)).check()
    FreeSpace().check()
    FreeSpace(str(tmp_path), Watermark(free_bytes=1, free_inodes=1)).check()


@pytest.mark.parametrize("what", ["free_bytes", "free_inodes"])
def test_below_the_watermark_the_error_says_what_to_do(tmp_path: Path, what: str) -> None:
    space = FreeSpace(str(tmp_path), Watermark(**{what: 1 << 60}))

    with pytest.raises(InsufficientStorage, match=r"disk is full but for a reserve, .*: delete sandboxes or files"):
        space.check()
    assert InsufficientStorage.status == 507


def test_the_disk_is_asked_once_in_a_while_only(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    space = FreeSpace(str(folder), Watermark(free_bytes=1 << 60), checked_s=3600)
    assert space.find_shortage()
    folder.rmdir()

    assert space.find_shortage()


def test_the_usual_watermark_is_a_small_share(tmp_path: Path) -> None:
    at, usual = os.statvfs(tmp_path), Watermark.of_disk(str(tmp_path))

    assert 0 < usual.free_bytes <= min(GIB, at.f_blocks * at.f_frsize // 20)
    assert usual.free_inodes <= 10_000
