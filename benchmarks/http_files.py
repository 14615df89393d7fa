"""A 1 GB file up and down over HTTP, and what the service's memory does meanwhile."""

from __future__ import annotations

import http.client
import re
import time
from typing import TYPE_CHECKING

from benchmarks.served import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.bench import Bench
    from benchmarks.served import Served

BLOCK = 1 << 20


async def measure(bench: Bench) -> None:
    """Send it, fetch it, fetch it as an archive, one after the other; the peak of the process tells what was held."""
    blocks = bench.times(1024, 128)
    size_mb = blocks * BLOCK / 1e6
    with served(bench.image, bench.folder, pool_size=0) as service:
        client = service.client()
        at = f"/api/v1/sandboxes/{client.get('POST', '/api/v1/sandboxes', {'disk_mb': 4096})['id']}"
        _send(service, f"{at}/files/warm", 8)
        _fetch(service, f"{at}/files/warm")
        before = _peak_mb(service)
        sent_s = _clock(lambda: _send(service, f"{at}/files/large", blocks))
        fetched_s = _clock(lambda: _fetch(service, f"{at}/files/large", blocks * BLOCK))
        packed_s = _clock(lambda: _fetch(service, f"{at}/archive", blocks * BLOCK))
        grown = _peak_mb(service) - before
        service.client().ask("DELETE", at)
    bench.note("write a 1 GB file over HTTP", size_mb / sent_s, "MB/s")
    bench.note("read a 1 GB file over HTTP", size_mb / fetched_s, "MB/s")
    bench.note("get a folder of 1 GB as a tar over HTTP", size_mb / packed_s, "MB/s")
    bench.at_most("memory the service grows by meanwhile", grown, 24, "MB")


def _clock(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _send(service: Served, path: str, blocks: int) -> None:
    def content() -> Iterator[bytes]:
        block = bytes(range(256)) * (BLOCK // 256)
        for _ in range(blocks):
            yield block

    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=300)
    headers = {"Authorization": f"Bearer {service.key}", "Content-Length": str(blocks * BLOCK)}
    connection.request("PUT", path, content(), headers)
    answer = connection.getresponse()
    if answer.status != 204:
        raise RuntimeError(f"PUT {path} answered {answer.status}: {answer.read()[:400]!r}")
    connection.close()


def _fetch(service: Served, path: str, least: int = 0) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=300)
    connection.request("GET", path, headers={"Authorization": f"Bearer {service.key}"})
    answer = connection.getresponse()
    buffer, size = bytearray(BLOCK), 0
    while count := answer.readinto(buffer):
        size += count
    connection.close()
    if answer.status != 200 or size < least:
        raise RuntimeError(f"GET {path} answered {answer.status} with {size} bytes")


def _peak_mb(service: Served) -> float:
    with open(f"/proc/{service.process.pid}/status", encoding="ascii") as status:
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read())[0]) * 1024 / 1e6
