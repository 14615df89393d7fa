"""Host user ids for sandboxes: a block of 65,536 for each data folder, so that no two on this host share an id.

Blocks lie from 1,879,048,192 (0x70000000) to 2,147,352,575: above the ids of useradd, its subordinate ids (up to
600,100,000) and systemd's dynamic users and containers (up to 1,879,048,191), and below the foreign ids of systemd
(from 2,147,352,576) and 2**31, above which some programs read an id as a negative number.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST = 1_879_048_192
BLOCK = 65_536
BLOCKS = 4094
REGISTRY = "/run/warren/uids"
_KEPT = "uid_block"


def claim(data_dir: str, registry: str = REGISTRY, blocks: int = BLOCKS) -> int:
    """Return the first uid of this data folder's block, claimed if it has none. Raises RuntimeError if none is left."""
    data_dir = os.path.realpath(data_dir)
    os.makedirs(registry, mode=0o755, exist_ok=True)
    with _locked(registry):
        kept = _load_block(data_dir)
        if kept is not None and _take(registry, kept, data_dir):
            return FIRST + kept * BLOCK
        # Not in order, so that a folder that is missing for a moment (an unmounted disk) seldom loses its block.
        start = secrets.randbelow(blocks)
        for offset in range(blocks):
            block = (start + offset) % blocks
            if _take(registry, block, data_dir):
                _store_block(data_dir, block)
                return FIRST + block * BLOCK
    raise RuntimeError(f"all {blocks} blocks of user ids are taken: remove unused files in {registry}")


@contextlib.contextmanager
def _locked(registry: str) -> Iterator[None]:
    descriptor = os.open(registry, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _take(registry: str, block: int, data_dir: str) -> bool:
    path = os.path.join(registry, str(block))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            holder = file.read()
        if holder == data_dir:
            return True
        if _load_block(holder) == block:
            return False
        # Its folder is gone, or has another block: this block is free.
        os.unlink(path)
        return _take(registry, block, data_dir)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(data_dir)
    return True


def _load_block(data_dir: str) -> int | None:
    try:
        with open(os.path.join(data_dir, _KEPT), encoding="utf-8") as file:
            block = int(file.read(16))
    except (OSError, ValueError):
        return None
    return block if 0 <= block < BLOCKS else None


def _store_block(data_dir: str, block: int) -> None:
    path = os.path.join(data_dir, _KEPT)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(f"{block}\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)
