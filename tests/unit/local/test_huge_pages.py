"""Huge pages under the heap of a zygote: what makes them possible is memory without holes."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
from warren.engines.local.linux import huge_pages
huge_pages.reserve_heap()
sizes = []
for line in open('/proc/self/maps'):
    fields = line.split(None, 5)
    if fields[1] == 'rw-p' and len(fields) == 5:
        low, high = (int(part, 16) for part in fields[0].split('-'))
        sizes.append((high - low) >> 20)
print(sum(size for size in sizes if size >= 16))
"""


def test_the_heap_is_reserved_in_blocks_that_many_huge_pages_fit_under() -> None:
    reserved = subprocess.run([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True, check=True).stdout

    assert int(reserved) >= 100
