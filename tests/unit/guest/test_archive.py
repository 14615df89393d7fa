"""Archives out and in: what is good survives the trip, what is hostile changes nothing."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from warren.domain.errors import Conflict, InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from unit.guest.agent_workspace import AgentWorkspace
    from warren.core.agent.client import AgentClient

FORMATS = ["tar", "tar.gz", "zip"]


def tar_of(*members: tuple[tarfile.TarInfo, bytes], kind: str = "tar") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz" if kind == "tar.gz" else "w") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


def zip_of(*members: tuple[str, bytes, int]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return out.getvalue()


async def packed(link: AgentClient, path: str, kind: str) -> bytes:
    return b"".join([piece async for piece in link.pack(path, kind)])


@pytest.mark.parametrize("kind", FORMATS)
def test_a_folder_packed_here_unpacks_there_the_same(here: AgentWorkspace, kind: str) -> None:
    files = {"d/a.txt": b"hello", "d/sub/b.bin": os.urandom(600_000), "d/empty": b"", "d/sub/\u00fc": b"umlaut"}
    here.make(files)
    os.mkdir(here.path("d/hollow"))
    os.symlink("sub/b.bin", here.path("d/link"))
    os.chmod(here.path("d/a.txt"), 0o750)

    async def story(link: AgentClient) -> int:
        return await link.unpack("copy", await packed(link, "d", kind), kind)

    count = here.do(story)

    assert count == 7
    for name, content in files.items():
        assert here.read(name.replace("d/", "copy/", 1)) == content
    assert os.readlink(here.path("copy/link")) == "sub/b.bin"
    assert os.path.isdir(here.path("copy/hollow"))
    assert stat.S_IMODE(os.stat(here.path("copy/a.txt")).st_mode) == 0o750


@pytest.mark.parametrize("kind", FORMATS)
def test_what_we_pack_others_can_read(here: AgentWorkspace, kind: str) -> None:
    here.make({"a": b"x" * 100_000, "b/c": b"y"})

    async def story(link: AgentClient) -> bytes:
        return await packed(link, ".", kind)

    blob = io.BytesIO(here.do(story))

    if kind == "zip":
        with zipfile.ZipFile(blob) as archive:
            assert archive.testzip() is None
            assert sorted(archive.namelist()) == ["a", "b/", "b/c"]
    else:
        with tarfile.open(fileobj=blob) as tar:
            assert sorted(tar.getnames()) == ["a", "b", "b/c"]


def test_one_file_is_packed_under_its_own_name_and_nothing_is_an_error(here: AgentWorkspace) -> None:
    here.make({"d/only.txt": b"content"})

    async def story(link: AgentClient) -> bytes:
        with pytest.raises(NotFound):
            await packed(link, "nothing", "tar")
        return await packed(link, "d/only.txt", "tar")

    with tarfile.open(fileobj=io.BytesIO(here.do(story))) as tar:
        assert tar.getnames() == ["only.txt"]


def test_fifos_are_left_out(here: AgentWorkspace) -> None:
    here.make({"f": b""})
    os.mkfifo(here.path("fifo"))

    async def story(link: AgentClient) -> bytes:
        return await packed(link, ".", "tar")

    with tarfile.open(fileobj=io.BytesIO(here.do(story))) as tar:
        assert tar.getnames() == ["f"]


HOSTILE_TARS = {
    "absolute": (member("/tmp/evil-of-warren"), b"x"),
    "climbing": (member("../evil"), b"x"),
    "climbing within": (member("a/../../evil"), b"x"),
    "absolute link": (member("evil", tarfile.SYMTYPE, "/etc/passwd"), b""),
    "climbing link": (member("evil", tarfile.SYMTYPE, "../.."), b""),
    "link climbing later": (member("d/evil", tarfile.SYMTYPE, "x/../../.."), b""),
    "hard link out": (member("evil", tarfile.LNKTYPE, "../socket"), b""),
    "hard link absolute": (member("evil", tarfile.LNKTYPE, "/etc/passwd"), b""),
    "hard link to the workspace": (member("evil", tarfile.LNKTYPE, "mine"), b""),
    "device": (member("evil", tarfile.CHRTYPE), b""),
    "block device": (member("evil", tarfile.BLKTYPE), b""),
    "fifo": (member("evil", tarfile.FIFOTYPE), b""),
}


@pytest.mark.parametrize("name", HOSTILE_TARS)
def test_one_hostile_member_fails_the_whole_and_is_named(here: AgentWorkspace, name: str) -> None:
    here.make({"mine": b"untouched"})
    blob = tar_of((member("good"), b"fine"), HOSTILE_TARS[name])

    async def story(link: AgentClient) -> None:
        with pytest.raises(InvalidRequest, match="evil"):
            await link.unpack(".", blob, "tar")

    here.do(story)

    assert here.tree() == ["mine"]
    assert not os.path.exists("/tmp/evil-of-warren")


def test_a_chain_of_links_that_would_climb_out_is_refused(here: AgentWorkspace) -> None:
    """Each link alone stays inside if read as text; followed one through the other they would not."""
    blob = tar_of(
        (member("d", tarfile.DIRTYPE), b""),
        (member("d/dot", tarfile.SYMTYPE, "."), b""),
        (member("d/out", tarfile.SYMTYPE, "dot/../.."), b""),
        (member("d/out/planted"), b"gotcha"),
    )

    async def story(link: AgentClient) -> None:
        with pytest.raises(InvalidRequest, match="d/out"):
            await link.unpack(".", blob, "tar")

    here.do(story)

    assert here.tree() == []


def test_a_member_below_a_link_of_the_archive_is_refused(here: AgentWorkspace) -> None:
    blob = tar_of(
        (member("real", tarfile.DIRTYPE), b""), (member("l", tarfile.SYMTYPE, "real"), b""), (member("l/x"), b"x")
    )

    async def story(link: AgentClient) -> None:
        with pytest.raises(InvalidRequest, match="l/x"):
            await link.unpack(".", blob, "tar")

    here.do(story)

    assert here.tree() == []


def test_a_link_that_is_there_already_is_not_written_through(here: AgentWorkspace) -> None:
    here.make({"real/keep": b"keep"})
    os.symlink("real", here.path("d"))

    async def story(link: AgentClient) -> None:
        with pytest.raises(Conflict):
            await link.unpack(".", tar_of((member("d/new"), b"x")), "tar")

    here.do(story)

    assert here.tree() == ["d", "real", "real/keep"]


@pytest.mark.parametrize(
    ("name", "content", "mode"),
    [
        ("/evil", b"x", stat.S_IFREG | 0o644),
        ("../evil", b"x", stat.S_IFREG | 0o644),
        ("evil", b"/etc/passwd", stat.S_IFLNK | 0o777),
        ("evil", b"../..", stat.S_IFLNK | 0o777),
        ("evil", b"", stat.S_IFIFO | 0o644),
        ("evil", b"", stat.S_IFCHR | 0o644),
    ],
)
def test_a_hostile_zip_is_refused_too(here: AgentWorkspace, name: str, content: bytes, mode: int) -> None:
    async def story(link: AgentClient) -> None:
        with pytest.raises(InvalidRequest, match="evil"):
            await link.unpack(".", zip_of(("good", b"fine", 0o644), (name, content, mode)), "zip")

    here.do(story)

    assert here.tree() == []


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("blob", [b"", b"not an archive at all", os.urandom(5000)], ids=["empty", "text", "noise"])
def test_what_is_not_an_archive_is_refused(here: AgentWorkspace, kind: str, blob: bytes) -> None:
    async def story(link: AgentClient) -> None:
        with pytest.raises(InvalidRequest):
            await link.unpack("d", blob, kind)

    here.do(story)

    assert here.tree() == ["d"]


def test_an_archive_cut_short_is_refused(here: AgentWorkspace) -> None:
    blob = tar_of((member("a"), os.urandom(100_000)), kind="tar.gz")

    async def story(link: AgentClient) -> None:
        with pytest.raises(InvalidRequest):
            await link.unpack(".", blob[:50_000], "tar.gz")

    here.do(story)

    assert here.tree() == []


def test_setuid_bits_are_stripped_and_hard_links_inside_work(here: AgentWorkspace) -> None:
    blob = tar_of((member("a", mode=0o6755), b"same"), (member("b", tarfile.LNKTYPE, "a"), b""))

    async def story(link: AgentClient) -> int:
        return await link.unpack(".", blob, "tar")

    assert here.do(story) == 2
    assert stat.S_IMODE(os.stat(here.path("a")).st_mode) == 0o755
    assert os.stat(here.path("a")).st_ino == os.stat(here.path("b")).st_ino


def test_unpacking_merges_folders_and_replaces_files_but_not_one_by_the_other(here: AgentWorkspace) -> None:
    here.make({"d/old": b"old", "d/both": b"old", "f": b"file"})

    async def story(link: AgentClient) -> None:
        await link.unpack(".", tar_of((member("d/both"), b"new"), (member("d/new"), b"new")), "tar")
        with pytest.raises(Conflict, match="'f'"):
            await link.unpack(".", tar_of((member("g"), b""), (member("f/x"), b"")), "tar")

    here.do(story)

    assert here.tree() == ["d", "d/both", "d/new", "d/old", "f"]
    assert (here.read("d/old"), here.read("d/both")) == (b"old", b"new")


def test_a_member_that_comes_twice_is_the_later_one(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        await link.unpack(".", tar_of((member("a"), b"first"), (member("a"), b"second")), "tar")

    here.do(story)

    assert here.read("a") == b"second"


def test_an_upload_that_stops_half_way_leaves_nothing(here: AgentWorkspace) -> None:
    blob = tar_of((member("a"), b"x" * 200_000), (member("b"), b"y" * 200_000))

    async def half() -> AsyncIterator[bytes]:
        yield blob[:300_000]
        await here.until(lambda: any(name.startswith(".warren-") for name in os.listdir(here.agent.workspace)))
        raise OSError("gone")

    async def story(link: AgentClient) -> None:
        with pytest.raises(OSError, match="gone"):
            await link.unpack(".", half(), "tar")
        await here.until(lambda: not here.tree())

    here.do(story)


def test_what_was_unpacked_is_not_a_change(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        await link.changes()
        await link.unpack("d", tar_of((member("a/b"), b"x")), "tar")
        assert await link.changes() == ((), True)

    here.do(story)


def test_many_members_stream_through(here: AgentWorkspace) -> None:
    count = 3000
    blob = tar_of(*((member(f"d{number % 20}/f{number}"), b"x") for number in range(count)), kind="tar.gz")

    async def story(link: AgentClient) -> int:
        return await link.unpack(".", blob, "tar.gz")

    assert here.do(story) == count
    assert len(here.tree()) == count + 20
