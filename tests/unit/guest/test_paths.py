"""Opening beneath the workspace: with openat2, and by the walk that stands in for it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from warren.guest.files.paths import PLACE, Workspace, check_regular, refusal, rename
from warren.guest.wire.parameters import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    inside = tmp_path / "workspace"
    inside.mkdir()
    (tmp_path / "secret").write_text("outside")
    fd = os.open(inside, PLACE)
    yield Workspace(fd, str(inside))
    os.close(fd)


@pytest.fixture(params=["openat2", "walk"])
def opening(request: pytest.FixtureRequest, workspace: Workspace) -> Callable[..., int]:
    """Both ways in: what the kernel does, and what is done by hand where it cannot."""
    return workspace.open if request.param == "openat2" else workspace.walk


def content(fd: int) -> str:
    with open(fd) as file:
        return file.read()


def test_a_plain_file_is_opened(workspace: Workspace, opening: Callable[..., int]) -> None:
    os.makedirs(f"{workspace.path}/a/b")
    with open(f"{workspace.path}/a/b/c", "w") as file:
        file.write("hello")

    assert content(opening("a/b/c", os.O_RDONLY)) == "hello"
    assert content(opening("a/./b/../b/c", os.O_RDONLY)) == "hello"


def test_a_link_inside_is_followed_relative_or_absolute(workspace: Workspace, opening: Callable[..., int]) -> None:
    os.mkdir(f"{workspace.path}/data")
    with open(f"{workspace.path}/data/x", "w") as file:
        file.write("here")
    os.symlink("data", f"{workspace.path}/relative")
    os.symlink(f"{workspace.path}/data/x", f"{workspace.path}/absolute")

    assert content(opening("relative/x", os.O_RDONLY)) == "here"
    assert content(opening("absolute", os.O_RDONLY)) == "here"


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "/proc/self/root/etc/passwd", "sub/../../secret"])
def test_a_link_that_leads_out_is_refused(workspace: Workspace, opening: Callable[..., int], target: str) -> None:
    os.mkdir(f"{workspace.path}/sub")
    os.symlink(target, f"{workspace.path}/link")

    with pytest.raises(OSError, match="Errno") as raised:
        opening("link", os.O_RDONLY)

    assert raised.value.errno == errno.EXDEV
    assert refusal(raised.value, "link").code == "outside_workspace"


def test_climbing_out_is_refused_even_through_a_folder(workspace: Workspace, opening: Callable[..., int]) -> None:
    os.mkdir(f"{workspace.path}/a")

    with pytest.raises(OSError, match="Errno") as raised:
        opening("a/../../secret", os.O_RDONLY)

    assert raised.value.errno == errno.EXDEV


def test_links_in_a_circle_end(workspace: Workspace, opening: Callable[..., int]) -> None:
    os.symlink("b", f"{workspace.path}/a")
    os.symlink("a", f"{workspace.path}/b")

    with pytest.raises(OSError, match="Errno") as raised:
        opening("a", os.O_RDONLY)

    assert raised.value.errno == errno.ELOOP


def test_no_link_is_followed_when_none_is_allowed(workspace: Workspace, opening: Callable[..., int]) -> None:
    os.mkdir(f"{workspace.path}/real")
    os.symlink("real", f"{workspace.path}/link")

    with pytest.raises(OSError, match="Errno") as raised:
        opening("link", PLACE, links=False)

    assert raised.value.errno == errno.ELOOP


def test_nofollow_opens_the_link_itself(workspace: Workspace, opening: Callable[..., int]) -> None:
    os.symlink("nowhere", f"{workspace.path}/link")

    fd = opening("link", os.O_PATH | os.O_NOFOLLOW)

    assert os.readlink("", dir_fd=fd) == "nowhere"
    os.close(fd)


def test_a_fifo_neither_blocks_nor_counts_as_a_file(workspace: Workspace, opening: Callable[..., int]) -> None:
    os.mkfifo(f"{workspace.path}/fifo")

    fd = opening("fifo", os.O_RDONLY)

    with pytest.raises(OSError, match="Errno") as raised:
        check_regular(fd)
    os.close(fd)
    assert refusal(raised.value, "fifo").code == "invalid_request"


def test_the_workspace_itself_is_a_folder_to_open(workspace: Workspace, opening: Callable[..., int]) -> None:
    fd = opening(".", PLACE)

    assert os.fstat(fd).st_ino == os.fstat(workspace.fd).st_ino
    os.close(fd)


def test_the_walk_leaves_no_descriptor_open(workspace: Workspace) -> None:
    os.makedirs(f"{workspace.path}/a/b/c")
    os.symlink(f"{workspace.path}/a", f"{workspace.path}/a/b/c/top")
    before = len(os.listdir("/proc/self/fd"))

    os.close(workspace.walk("a/b/c/top/b/c/../../b", PLACE))
    with pytest.raises(OSError, match="Errno"):
        workspace.walk("a/b/c/top/b/nothing/x", PLACE)

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../b", "a\0b", "x" * 4096, "\ud800", "/"])
def test_a_path_that_is_not_the_workspaces_is_refused(workspace: Workspace, path: str) -> None:
    with pytest.raises(Refused) as raised:
        workspace.relative(path)

    makes_sense = len(path) < 100 and path.isascii() and path.isprintable()
    assert raised.value.code == ("outside_workspace" if makes_sense else "invalid_request")


@pytest.mark.parametrize(("path", "reduced"), [("", "."), (".", "."), ("./a//b/", "a/b"), ("a/../b", "b")])
def test_a_path_is_reduced(workspace: Workspace, path: str, reduced: str) -> None:
    assert workspace.relative(path) == reduced
    assert workspace.relative(f"{workspace.path}/{path}") == reduced


def test_a_sibling_whose_name_begins_like_the_workspace_is_outside(workspace: Workspace) -> None:
    with pytest.raises(Refused):
        workspace.relative(workspace.path + "-other/file")


def test_the_home_folder_counts_when_it_is_the_workspace_by_another_name(workspace: Workspace, tmp_path: Path) -> None:
    os.symlink(workspace.path, tmp_path / "home")
    with open(f"{workspace.path}/f", "w") as file:
        file.write("mine")
    os.symlink(f"{tmp_path}/home/f", f"{workspace.path}/link")
    at_home = Workspace(workspace.fd, workspace.path, f"{tmp_path}/home")

    assert at_home.relative(f"{tmp_path}/home/a/b") == "a/b"
    assert content(at_home.open("link", os.O_RDONLY)) == "mine"
    for elsewhere in (str(tmp_path), "/nonexistent", ""):
        with pytest.raises(Refused):
            Workspace(workspace.fd, workspace.path, elsewhere).relative(f"{tmp_path}/secret")


def test_folders_are_made_and_the_second_time_is_fine(workspace: Workspace) -> None:
    os.close(workspace.make_folders("a/b/c"))
    os.close(workspace.make_folders("a/b/c"))

    assert os.path.isdir(f"{workspace.path}/a/b/c")


def test_folders_are_not_made_through_a_link_that_leads_out(workspace: Workspace) -> None:
    os.symlink("..", f"{workspace.path}/up")

    with pytest.raises(OSError, match="Errno"):
        workspace.make_folders("up/made")

    assert not os.path.exists(f"{workspace.path}/../made")


def test_rename_without_replace_keeps_what_is_there(workspace: Workspace) -> None:
    for name in ("a", "b"):
        with open(f"{workspace.path}/{name}", "w") as file:
            file.write(name)

    with pytest.raises(FileExistsError):
        rename(workspace.fd, "a", workspace.fd, "b", replace=False)
    rename(workspace.fd, "a", workspace.fd, "c", replace=False)

    assert sorted(os.listdir(workspace.path)) == ["b", "c"]


def test_the_full_disk_is_named() -> None:
    refused = refusal(OSError(errno.ENOSPC, "No space left on device"), "big.bin")

    assert refused.code == "too_large"
    assert "disk is full" in str(refused)
    assert "big.bin" in str(refused)
