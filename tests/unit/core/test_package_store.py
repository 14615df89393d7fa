"""Package store: eviction when the cache is full."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from warren.core.packages.sources import Digest
from warren.core.packages.store import PackageStore

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 1000


def keep(store: PackageStore, content: bytes) -> Digest:
    digest = Digest("sha256", hashlib.sha256(content).hexdigest())
    incoming = store.begin()
    incoming.write(content)
    assert store.keep(incoming, digest)
    incoming.close()
    return digest


def use(store: PackageStore, digest: Digest) -> bool:
    file = store.find(digest)
    if file is None:
        return False
    os.close(file)
    return True


def test_of_files_that_were_used_in_the_same_moment_the_first_goes_first(tmp_path: Path) -> None:
    store = PackageStore(str(tmp_path), 20 * SIZE)
    store.open()
    digests = [keep(store, b"%d" % number * SIZE) for number in range(10)]
    # By name the last is the first to be used, and so the first to go.
    for digest in sorted(digests, key=lambda each: each.value, reverse=True):
        assert use(store, digest)
    store = PackageStore(str(tmp_path), 10 * SIZE)
    store.open()
    newest = keep(store, b"x" * SIZE)
    left = [digest for digest in digests if use(store, digest)]
    assert use(store, newest)
    assert sorted(set(digests) - set(left), key=lambda each: each.value) == [max(digests, key=lambda each: each.value)]
