"""Private memory of one sandbox: what `smaps_rollup` of its processes calls Private_Clean and Private_Dirty, added up.

Beside it, without a promise, the stricter count: every anonymous page frame that one of its processes maps and the
zygote does not. That counts, once, also what agent, forkserver, kernel and checkpoint share among themselves.
"""

from __future__ import annotations

import array
import json
import os
from typing import TYPE_CHECKING

import anyio

from benchmarks.bench import Bench, median, run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warren.domain.values import Handle

PAGE = os.sysconf("SC_PAGE_SIZE")
SETTLE_S = 0.5
_PRESENT, _FILE = 1 << 63, 1 << 61
_FRAME = (1 << 55) - 1


async def measure(bench: Bench) -> None:
    """Measure before anybody connects, and after one call and its checkpoint."""
    never: list[float] = []
    used: list[float] = []
    never_frames: list[float] = []
    frames: list[float] = []
    for _ in range(bench.times(10, 3)):
        handle = await bench.engine.create(bench.spec())
        await anyio.sleep(SETTLE_S)
        never.append(_private_mb(bench, handle))
        never_frames.append(_frames_mb(bench, handle))
        async with bench.agent(handle) as agent:
            await run(agent, "x = 1 + 1")
            await anyio.sleep(SETTLE_S)
            used.append(_private_mb(bench, handle))
            frames.append(_frames_mb(bench, handle))
            if not (await run(agent, "x")).protected:
                raise RuntimeError("the kernel was not checkpointed, so its memory was not measured with one")
        await bench.engine.destroy(handle)
    bench.at_most("private memory of a never-used sandbox", median(never), 4, "MB")
    bench.note("the same, with what its processes share only with each other", median(never_frames), "MB")
    bench.at_most("private memory after a call, with its checkpoint", median(used), 8, "MB")
    bench.note("the same, with what its processes share only with each other", median(frames), "MB")


def _private_mb(bench: Bench, handle: Handle) -> float:
    total = 0
    for pid in _sandbox_pids(bench, handle):
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith(("Private_Clean", "Private_Dirty")))
    return total * 1024 / 1e6


def _frames_mb(bench: Bench, handle: Handle) -> float:
    frames = _frames(_sandbox_pids(bench, handle)) - _frames(_zygote_pids(bench))
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
