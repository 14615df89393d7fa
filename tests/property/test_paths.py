"""The path rules: no path, through no forest of links, opens anything outside of the workspace."""

from __future__ import annotations

import os
import posixpath
import tempfile
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.guest.files.paths import PLACE, Workspace
from warren.guest.wire.parameters import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

names = st.sampled_from(["a", "b", "c", "..", ".", ""])
relative_paths = st.lists(names, max_size=6).map("/".join)
targets = st.one_of(
    relative_paths,
    relative_paths.map(lambda path: "@/" + path),
    st.sampled_from(["/", "/etc", "/proc/self/root", "/proc/self/cwd", "@", "@-other"]),
)
links = st.dictionaries(st.sampled_from(["a", "b", "c", "d/a", "d/b", "d/e/a"]), targets, max_size=5)


@given(st.text(max_size=40))
def test_a_reduced_path_is_relative_and_does_not_climb(path: str) -> None:
    workspace = Workspace(-1, "/workspace")
    try:
        reduced = workspace.relative(path)
    except Refused:
        return
    assert not reduced.startswith("/")
    assert ".." not in reduced.split("/")
    assert posixpath.normpath(reduced) == reduced
    assert workspace.relative(reduced) == reduced
    assert workspace.relative(f"/workspace/{reduced}") == reduced


@settings(deadline=None, max_examples=150)
@given(links, relative_paths | st.sampled_from(["d/a/c", "d/e/a/b", "a/b/c/d"]))
def test_links_of_any_shape_never_lead_out_and_both_ways_agree(made: dict[str, str], path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.join(os.path.realpath(folder), "workspace")
        os.makedirs(f"{root}/d/e")
        os.mkdir(f"{root}-other")
        for name, target in made.items():
            os.symlink(target.replace("@", root) or ".", f"{root}/{name}")
        fd = os.open(root, PLACE)
        workspace = Workspace(fd, root)
        try:
            by_kernel, by_hand = _try(workspace.open, path), _try(workspace.walk, path)
        finally:
            os.close(fd)
        for found in (by_kernel, by_hand):
            assert found is None or found == root or found.startswith(root + "/")
        assert by_kernel == by_hand


def _try(opening: Callable[[str, int], int], path: str) -> str | None:
    try:
        fd = opening(path or ".", os.O_PATH)
    except OSError:
        return None
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
