"""Unpacking: no archive, however made, puts or changes anything outside of its folder, or leaves half of itself."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import tarfile
import tempfile
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.guest.files.paths import PLACE, Workspace
from warren.guest.files.unpack import unpack
from warren.guest.wire.parameters import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

parts = st.sampled_from(["a", "b", "d", "..", ".", ""])
paths = st.lists(parts, min_size=1, max_size=4).map("/".join)
kinds = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
members = st.lists(st.tuples(paths, kinds, paths, st.binary(max_size=20)), min_size=1, max_size=6)


def build(some: list[tuple[str, bytes, str, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, target, content in some:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


@contextlib.contextmanager
def workspace_beside_a_canary() -> Iterator[tuple[str, Workspace]]:
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.join(folder, "workspace")
        os.makedirs(os.path.join(root, "into"))
        with open(os.path.join(root, "mine"), "w") as file:
            file.write("untouched")
        fd = os.open(root, PLACE)
        try:
            yield folder, Workspace(fd, root)
        finally:
            os.close(fd)


def attempt(workspace: Workspace, blob: bytes, kind: str) -> bool:
    """Unpack into the folder `into`; say whether that was accepted."""
    with tempfile.TemporaryFile() as source:
        source.write(blob)
        source.seek(0)
        try:
            unpack(workspace, "into", kind, ".warren-temporary", source.fileno())
        except (Refused, OSError):
            return False
    return True


def outside_is_unchanged(folder: str) -> bool:
    with open(os.path.join(folder, "workspace", "mine")) as file:
        content = file.read()
    return (
        os.listdir(folder) == ["workspace"]
        and sorted(os.listdir(os.path.join(folder, "workspace"))) == ["into", "mine"]
        and content == "untouched"
    )


def stays_below(root: str, path: str) -> bool:
    try:
        os.stat(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return True  # It leads nowhere, and realpath answers nonsense.
    reached = os.path.realpath(path)
    return reached == root or reached.startswith(root + "/")


@settings(deadline=None, max_examples=200)
@given(members)
def test_no_tar_reaches_out_and_a_refused_one_leaves_nothing(some: list[tuple[str, bytes, str, bytes]]) -> None:
    with workspace_beside_a_canary() as (folder, workspace):
        accepted = attempt(workspace, build(some), "tar")

        into = os.path.join(folder, "workspace", "into")
        assert outside_is_unchanged(folder)
        assert accepted or os.listdir(into) == []
        root = os.path.realpath(into)
        for place, folders, files in os.walk(into):
            for name in folders + files:
                assert stays_below(root, os.path.join(place, name))


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=2000), st.sampled_from(["tar", "tar.gz", "zip"]))
def test_noise_is_refused_and_leaves_nothing(noise: bytes, kind: str) -> None:
    with workspace_beside_a_canary() as (folder, workspace):
        attempt(workspace, noise, kind)

        assert outside_is_unchanged(folder)
        assert os.listdir(os.path.join(folder, "workspace", "into")) == []


@settings(deadline=None, max_examples=100)
@given(members, st.integers(min_value=0), st.integers(0, 255))
def test_a_damaged_archive_never_reaches_out(some: list[tuple[str, bytes, str, bytes]], place: int, value: int) -> None:
    blob = bytearray(build(some))
    blob[place % min(len(blob), 4096)] = value
    with workspace_beside_a_canary() as (folder, workspace):
        attempt(workspace, bytes(blob), "tar")

        assert outside_is_unchanged(folder)
