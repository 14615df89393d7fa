"""A program that writes to a store, eight at a time, and says on standard output what it was told is kept.

Arguments: the folder, and how many rows to append (0: until it is killed).
"""

from __future__ import annotations

import os
import sys

import anyio

from warren.stores.sqlite import SqliteStore
from warren.testing.store_subject import make_entry, make_execution, make_sandbox


async def main(folder: str, most: int) -> None:
    store = SqliteStore(folder)
    await store.open()
    sandbox = make_sandbox()
    await store.add(sandbox)
    written = 0

    async def write() -> None:
        nonlocal written
        while not most or written < most:
            written += 1
            execution = make_execution(sandbox)
            await store.record(execution)
            await store.append(make_entry(execution_id=execution.id))
            # WHY: one write call a line, so that a line is there whole or not at all.
            os.write(1, f"{execution.id}\n".encode())

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(write)
    await store.close()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], int(sys.argv[2]))
