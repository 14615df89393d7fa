from __future__ import annotations

import contextlib
import io
import os
import tarfile
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any

import pytest

from warren.sdk import folders
from warren.sdk.content import PIECE, Content, build_form
from warren.sdk.options import ExecOptions, SandboxOptions, build_body, read_timeout, what_to_run
from warren.sdk.request import build_query

if TYPE_CHECKING:
    from pathlib import Path

    from warren.sdk.content import Uploadable


def read(content: Content) -> bytes:
    pieces = content.read()
    assert not isinstance(pieces, AsyncIterable)
    return b"".join(pieces)


def test_content_is_read_again_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    opened = io.BytesIO(b"--0123456789")
    opened.seek(2)
    sources: tuple[Uploadable, ...] = (b"0123456789", "0123456789", tmp_path / "file", opened)
    for source in sources:
        content = Content.of(source)
        assert (content.size, content.can_read_again) == (10, True)
        assert read(content) == read(content) == b"0123456789"


def test_content_comes_in_pieces() -> None:
    sizes = [len(piece) for piece in Content.of(b"x" * (2 * PIECE + 1)).read()]  # type: ignore[union-attr]  # bytes are

    assert sizes == [PIECE, PIECE, 1]


def test_pieces_are_read_once() -> None:
    content = Content.of([b"a", b"b"])

    assert (content.size, content.can_read_again, read(content)) == (None, False, b"ab")


def test_what_cannot_be_uploaded_is_named() -> None:
    with pytest.raises(TypeError, match="cannot upload int"):
        Content.of(3)  # type: ignore[arg-type]  # that is the point


def test_a_form_has_every_file() -> None:
    content, kind = build_form({"a.txt": "a", 'b/"q".txt': b"b"})
    body = read(content)

    assert content.size == len(body)
    assert kind.removeprefix("multipart/form-data; boundary=").encode() in body
    assert b'filename="b/%22q%22.txt"' in body


def test_an_archive_cannot_leave_its_folder(tmp_path: Path) -> None:
    for name, kind in (("../out", tarfile.REGTYPE), ("/abs", tarfile.REGTYPE), ("dev", tarfile.CHRTYPE)):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            member = tarfile.TarInfo(name)
            member.type = kind
            archive.addfile(member)
        with contextlib.suppress(OSError):
            folders.unpack(packed, tmp_path / "in")
        assert not (tmp_path / "out").exists()
        assert {path.name for path in (tmp_path / "in").rglob("*")} <= {"abs"}


def test_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("link/evil"))

    with pytest.raises(OSError, match="out of the folder"):
        folders.unpack(packed, tmp_path / "in")
    assert not (tmp_path / "evil").exists()


def test_no_way_is_too_long_to_see_where_it_leads(tmp_path: Path) -> None:
    """A chain of links whose end is beyond what `realpath` follows: the filter of Python itself is taken in by it."""
    packed, deep, steps = io.BytesIO(), "d" * 247, "abcdefghijklmnop"
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for number, step in enumerate(steps):
            above = f"{deep}/" * number
            archive.addfile(build_member(above + deep, tarfile.DIRTYPE))
            archive.addfile(build_member(above + step, tarfile.SYMTYPE, deep))
        far = f"{'/'.join(steps)}/{'l' * 254}"
        archive.addfile(build_member(far, tarfile.SYMTYPE, "../" * len(steps)))
        archive.addfile(build_member("escape", tarfile.SYMTYPE, f"{far}/../.."))
        archive.addfile(build_member("escape/evil"))

    with pytest.raises(PermissionError):
        folders.unpack(packed, tmp_path / "a" / "b" / "in")
    assert not list(tmp_path.glob("**/evil"))


@pytest.mark.parametrize(
    "members",
    [
        [("way", tarfile.SYMTYPE, "there"), ("way/file", tarfile.REGTYPE, "")],
        [("way", tarfile.SYMTYPE, "there"), ("copy", tarfile.LNKTYPE, "way/file")],
        [("way", tarfile.SYMTYPE, "there"), ("way", tarfile.DIRTYPE, "")],
        [("up", tarfile.SYMTYPE, "there/../..")],
        [("there/up", tarfile.SYMTYPE, "../..")],
    ],
)
def test_nothing_is_written_through_a_link(tmp_path: Path, members: list[tuple[str, bytes, str]]) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(build_member("there", tarfile.DIRTYPE))
        for member in members:
            archive.addfile(build_member(*member))

    with pytest.raises(PermissionError):
        folders.unpack(packed, tmp_path)


def test_links_within_the_folder_come_along_and_are_replaced(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(build_member("a/file"))
        archive.addfile(build_member("a/b/link", tarfile.SYMTYPE, "../file"))
        archive.addfile(build_member("a/b/link"))

    assert folders.unpack(packed, tmp_path) == 3
    assert not (tmp_path / "a/b/link").is_symlink()


def build_member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, target, 0o755
    return member


def test_sockets_and_owners_stay_here(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")

    with folders.pack(tmp_path) as packed, tarfile.open(fileobj=packed) as archive:
        (member,) = archive.getmembers()

    assert (member.name, member.uid, member.uname) == ("file", 0, "")


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    target.chmod(0o600)

    with folders.saving(target) as file:
        file.write(b"new")
        file.flush()
        assert target.read_text() == "old"
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", 0o600)

    def fail() -> None:
        with folders.saving(str(target)) as half:
            half.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (target.read_text(), len(list(tmp_path.iterdir()))) == ("new", 1)


def test_options_become_a_body() -> None:
    options: Any = {"stdin": b"\xff", "exact": True, "cwd": None, "timeout_seconds": 3, "idempotency_key": "k"}

    body = build_body(options, ExecOptions, code="1")

    assert body == {"stdin_base64": "/w==", "encoding": "base64", "timeout_seconds": 3, "code": "1"}
    with pytest.raises(TypeError, match="did you mean memory_mb"):
        build_body({"memory": 3}, SandboxOptions)


def test_exactly_one_thing_runs() -> None:
    assert what_to_run("1", None) == {"code": "1"}
    assert what_to_run("", None) == {"code": ""}
    assert what_to_run(None, "ls") == {"command": "ls"}
    assert what_to_run(None, ("ls", "-l")) == {"argv": ["ls", "-l"]}
    for code, command in ((None, None), ("1", "ls")):
        with pytest.raises(TypeError, match="either code or command="):
            what_to_run(code, command)


def test_an_answer_may_take_as_long_as_the_run() -> None:
    assert read_timeout({}, 60) is None
    assert read_timeout({"timeout_seconds": 100, "grace_seconds": 5}, 60) == 165


def test_queries_are_written_as_the_service_reads_them() -> None:
    values = {"a": True, "b": None, "c": ["x", "y"], "d": 3, "e": "text", "f": ()}

    assert build_query(values) == [("a", "true"), ("c", "x"), ("c", "y"), ("d", "3"), ("e", "text")]
