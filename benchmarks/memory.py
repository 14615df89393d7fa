"""Memory that one sandbox adds to the host: anonymous pages that its processes have and the zygote has not."""

from __future__ import annotations

import array
import json
import os
from typing import TYPE_CHECKING

import anyio

from benchmarks.bench import Bench, median, run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warren.domain import Handle

PAGE = os.sysconf("SC_PAGE_SIZE")
SETTLE_S = 0.5
_PRESENT, _FILE = 1 << 63, 1 << 61
_FRAME = (1 << 55) - 1


async def measure(bench: Bench) -> None:
    """Count by page frame, so that a page which agent and kernel share between them counts once, not never."""
    never: list[float] = []
    used: list[float] = []
    rollup: list[float] = []
    for _ in range(bench.times(10, 3)):
        handle = await bench.engine.create(bench.spec())
        await anyio.sleep(SETTLE_S)
        never.append(_private_mb(bench, handle))
        async with bench.link(handle) as link:
            await run(link, "import numpy, pandas, matplotlib.pyplot\nx = 1+1")
            await anyio.sleep(SETTLE_S)
            used.append(_private_mb(bench, handle))
            rollup.append(_rollup_mb(_sandbox_pids(bench, handle)))
            if not (await run(link, "x")).protected:
                raise RuntimeError("the kernel was not checkpointed, so its memory was not measured with one")
        await bench.engine.destroy(handle)
    bench.at_most("private memory of a never-used sandbox", median(never), 4, "MB")
    bench.at_most("private memory after a call, with its checkpoint", median(used), 8, "MB")
    bench.note("the same by smaps_rollup, Private_Clean + Private_Dirty", median(rollup), "MB")


def _private_mb(bench: Bench, handle: Handle) -> float:
    inside = _sandbox_pids(bench, handle)
    frames = _frames(inside) - _frames(_zygote_pids(bench))
    return len(frames) * PAGE / 1e6


def _sandbox_pids(bench: Bench, handle: Handle) -> list[int]:
    with open(os.path.join(bench.folder, "local", "sandboxes", handle.sandbox_id, "record.json"), "rb") as file:
        first = json.load(file)["pid"]
    namespace = os.readlink(f"/proc/{first}/ns/pid")
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _namespace(pid) == namespace]


def _zygote_pids(bench: Bench) -> list[int]:
    with open(os.path.join(bench.folder, "local", "zygotes", bench.image.digest, "zygote.json"), "rb") as file:
        return [json.load(file)["pid"]]


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _frames(pids: Iterable[int]) -> set[int]:
    return {frame for pid in pids for frame in _anonymous_frames(pid)}


def _anonymous_frames(pid: int) -> Iterable[int]:
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as file:
        areas = [tuple(int(part, 16) for part in line.split()[0].split("-")) for line in file if "vsyscall" not in line]
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        for low, high in areas:
            pagemap.seek(low // PAGE * 8)
            entries = array.array("Q")
            entries.frombytes(pagemap.read((high - low) // PAGE * 8))
            yield from (entry & _FRAME for entry in entries if entry & _PRESENT and not entry & _FILE)


def _rollup_mb(pids: Iterable[int]) -> float:
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith(("Private_Clean", "Private_Dirty")))
    return total * 1024 / 1e6
