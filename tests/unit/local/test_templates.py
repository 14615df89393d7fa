"""Templates of disk images: few, shared, bounded, and never removed while they are copied."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import pytest

from warren.domain.values import MIB, Limits
from warren.engines.local.keeper.templates import Size, Templates, round_up
from warren.engines.local.keeper.threads import SLOW, Threads
from warren.engines.local.linux import disk_image

if TYPE_CHECKING:
    from pathlib import Path

needs_mkfs = pytest.mark.skipif(disk_image.find_program("mkfs.ext4") is None, reason="e2fsprogs is not installed")


def _size(mib: int) -> Size:
    return Size.of(Limits(disk_bytes=mib * MIB, disk_inodes=1024))


def _names(folder: Path) -> list[int]:
    return sorted(int(name.partition("-")[0]) // MIB for name in os.listdir(folder))


def test_sizes_are_rounded_up_by_a_quarter_at_most_and_there_are_few() -> None:
    sizes = [round_up(mib * MIB) for mib in range(16, 130_000, 7)]

    assert [round_up(mib * MIB) // MIB for mib in (16, 17, 64, 65, 2048, 2049)] == [16, 20, 64, 80, 2048, 2560]
    assert all(mib * MIB <= size <= mib * MIB * 1.25 for mib, size in zip(range(16, 130_000, 7), sizes, strict=True))
    assert len(set(sizes)) < 60


@needs_mkfs
def test_one_template_serves_all_sizes_of_a_step_and_is_made_once(tmp_path: Path) -> None:
    async def go() -> None:
        templates = Templates(str(tmp_path), Threads())

        async def use(mib: int) -> tuple[str, int]:
            async with templates.use(_size(mib), journal=False) as path:
                return path, os.stat(path).st_ino

        assert len(set(await asyncio.gather(*(use(mib) for mib in range(65, 81))))) == 1

    asyncio.run(go())

    assert _names(tmp_path) == [80]


@needs_mkfs
def test_the_least_recently_used_ones_go_except_those_in_use(tmp_path: Path) -> None:
    async def go() -> None:
        templates = Templates(str(tmp_path), Threads(), most=2)
        async with templates.use(_size(16), journal=False) as kept:
            for mib in (20, 24, 20, 28):
                async with templates.use(_size(mib), journal=False):
                    pass
            assert os.stat(kept)
            assert _names(tmp_path) == [16, 28]

    asyncio.run(go())


@needs_mkfs
def test_another_keeper_finds_the_templates_and_removes_what_is_half_made(tmp_path: Path) -> None:
    async def go() -> None:
        async with Templates(str(tmp_path), Threads()).use(_size(16), journal=True) as path:
            before = os.stat(path).st_ino
        for name in ("spare-1.ext4", "1-2.ext4.77.new"):
            (tmp_path / name).touch()
        async with Templates(str(tmp_path), Threads()).use(_size(16), journal=True) as path:
            assert os.stat(path).st_ino == before

    asyncio.run(go())

    assert _names(tmp_path) == [16]


def test_quick_work_does_not_wait_for_slow_work() -> None:
    async def go() -> int:
        threads, ended = Threads(), threading.Event()
        slow = [asyncio.create_task(threads.run_slow(ended.wait)) for _ in range(SLOW + 3)]
        async with asyncio.timeout(60):
            done = await threads.run_quick(lambda: 7)
        assert not any(each.done() for each in slow)
        ended.set()
        await asyncio.gather(*slow)
        return done

    assert asyncio.run(go()) == 7


def test_cancelled_work_is_waited_for_and_undone() -> None:
    async def go() -> list[str]:
        threads, begun, ended, undone = Threads(), threading.Event(), threading.Event(), list[str]()

        def work() -> str:
            begun.set()
            ended.wait()
            return "made"

        task = asyncio.create_task(threads.run_quick(work, undone.append))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        asyncio.get_running_loop().call_soon(ended.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        return undone

    assert asyncio.run(go()) == ["made"]
