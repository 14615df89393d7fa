"""Skill packages: valid ones are read, and others are refused before any of it is stored."""

from __future__ import annotations

import contextlib
import io
import stat
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.core.skills.package import (
    MAX_FILES,
    MAX_PACKAGE,
    MAX_TEXT,
    MAX_UNPACKED,
    check_package,
    is_text_alone,
    pack_text,
    read_front,
    read_text,
    with_front,
)
from warren.domain.errors import InvalidRequest, TooLarge

HEAD = "---\nname: data-analyzer\ndescription: Analyzes tables.\n---\n"
TEXT = f"{HEAD}# How\n"


def pack(files: dict[str, bytes | str], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", how) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def pack_member(member: zipfile.ZipInfo, content: bytes = b"x") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("SKILL.md", TEXT)
        archive.writestr(member, content)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("filename", "files", "folder"),
    [
        ("a.zip", {"SKILL.md": TEXT}, ""),
        ("A.SKILL", {"SKILL.md": TEXT, "scripts/run.py": "print(1)", "other/SKILL.md": "x"}, ""),
        ("a.zip", {"inner/": "", "inner/SKILL.md": TEXT, "inner/data/a.csv": "1"}, "inner"),
        ("a.zip", {"inner/SKILL.md": TEXT, "__MACOSX/inner/._SKILL.md": "x", "inner/.DS_Store": "x"}, "inner"),
    ],
)
def test_a_package_has_its_skill_at_the_root_or_in_its_only_folder(
    filename: str, files: dict[str, bytes | str], folder: str
) -> None:
    content = pack(files)
    package = check_package(filename, content)

    assert (package.name, package.description) == ("data-analyzer", "Analyzes tables.")
    assert (package.folder, package.content, package.skill_md) == (folder, content, TEXT)
    assert read_text(content, folder) == TEXT


def test_a_text_alone_becomes_a_package_that_is_always_the_same() -> None:
    package = check_package("skill.md", TEXT.encode())

    assert package == pack_text(TEXT)
    assert check_package("again.zip", package.content).skill_md == TEXT
    assert is_text_alone(package.content)
    assert not is_text_alone(pack({"SKILL.md": TEXT, "a": "b"}))


@pytest.mark.parametrize(
    ("filename", "content", "why"),
    [
        ("a.tar.gz", b"", "send a .zip"),
        ("zip", b"", "not a zip"),
        ("a.zip", b"PK nothing", "not a zip"),
        ("a.zip", pack({}), "must have a SKILL.md"),
        ("a.zip", pack({"readme.md": TEXT}), "must have a SKILL.md"),
        ("a.zip", pack({"a/SKILL.md": TEXT, "b/x": ""}), "must have a SKILL.md"),
        ("a.zip", pack({"a/b/SKILL.md": TEXT}), "must have a SKILL.md"),
        ("a.zip", pack({"SKILL.md": TEXT, "../../etc/cron.d/x": ""}), "leads elsewhere"),
        ("a.zip", pack({"SKILL.md": TEXT, "/etc/x": ""}), "leads elsewhere"),
        ("a.zip", pack({"SKILL.md": TEXT, "a//b": ""}), "leads elsewhere"),
        ("a.zip", pack({"SKILL.md": TEXT, "a\\..\\b": ""}), "characters"),
        ("a.zip", pack({"SKILL.md": TEXT, "a\nb": ""}), "characters"),
        ("a.zip", pack({"SKILL.md": TEXT, "/".join("a" * 20): ""}), "too deep"),
        ("a.zip", pack({"SKILL.md": TEXT, "a" * 256: ""}), "too long"),
        ("a.zip", pack({"SKILL.md": TEXT, ".warren-skill": ""}), "Warren's own"),
        ("a.zip", pack({"SKILL.md": TEXT, "a": "", "a/b": ""}), "has a file for a folder"),
        ("a.zip", pack({"SKILL.md": TEXT}, zipfile.ZIP_BZIP2), "other than deflate"),
        ("a.zip", pack({"SKILL.md": b"\xff\xfe"}), "not UTF-8"),
        ("a.zip", pack({"SKILL.md": "# no head"}), "must begin with"),
        ("a.md", b"---\nname: Data Analyzer\ndescription: x\n---\n", "must have a name"),
        ("a.md", b"---\nname: a--b\ndescription: x\n---\n", "must have a name"),
        ("a.md", b"---\nname: " + b"a" * 65 + b"\ndescription: x\n---\n", "must have a name"),
        ("a.md", b"---\nname: a\n---\n", "must have a description"),
        ("a.md", b"---\nname: a\ndescription: " + b"x" * 1025 + b"\n---\n", "must have a description"),
        ("a.md", b"---\nname: *x\n---\n", "cannot be read: line 1"),
        ("a.md", b"---\n- a\n---\n", "must have a name"),
        ("a.md", HEAD.encode() + b"\0", "NUL"),
    ],
)
def test_what_is_not_in_order_is_refused(filename: str, content: bytes, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        check_package(filename, content)


@pytest.mark.parametrize(
    ("front", "description"),
    [
        ("description: Use it when: a table is there", "Use it when: a table is there"),
        ("description: Use it\n  when: a table\n  is there\nlicense: MIT", "Use it when: a table is there"),
        ("description: >\n  Folded\n  text", "Folded text"),
        ("metadata: {author: me}\ndescription: 'Quoted: text'", "Quoted: text"),
    ],
)
def test_descriptions_are_read_as_authors_write_them(front: str, description: str) -> None:
    assert read_front(f"---\nname: a\n{front}\n---\n") == ("a", description)


@pytest.mark.parametrize(
    "mode", [stat.S_IFLNK | 0o777, stat.S_IFIFO | 0o644, stat.S_IFCHR | 0o644, stat.S_IFDIR | 0o755]
)
def test_links_and_special_files_are_refused(mode: int) -> None:
    member = zipfile.ZipInfo("a")
    member.external_attr = mode << 16

    with pytest.raises(InvalidRequest, match="link or a special file"):
        check_package("a.zip", pack_member(member, b"/etc/passwd"))


def test_what_is_encrypted_is_refused() -> None:
    packed = bytearray(pack({"SKILL.md": TEXT}))
    packed[packed.index(b"PK\x01\x02") + 8] |= 1

    with pytest.raises(InvalidRequest, match="encrypted"):
        check_package("a.zip", bytes(packed))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        check_package("a.zip", pack_member(zipfile.ZipInfo("SKILL.md")))


def test_what_is_damaged_is_refused() -> None:
    packed = bytearray(pack({"SKILL.md": TEXT, "a": "x" * 1000}, zipfile.ZIP_STORED))
    packed[packed.index(b"xxxx")] = ord("y")

    with pytest.raises(InvalidRequest, match="not a zip that can be unpacked"):
        check_package("a.zip", bytes(packed))


def test_a_member_that_is_larger_than_it_says_is_refused() -> None:
    packed = bytearray(pack({"SKILL.md": TEXT, "bomb": b"\0" * 1_000_000}))
    where = packed.rindex(b"PK\x01\x02")
    packed[where + 24 : where + 28] = (1000).to_bytes(4, "little")

    with pytest.raises(InvalidRequest, match="not a zip that can be unpacked"):
        check_package("a.zip", bytes(packed))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"x" * (MAX_PACKAGE + 1), "when packed"),
        (pack({"SKILL.md": TEXT, **{str(number): "" for number in range(MAX_FILES)}}), "more than 100 files"),
        (pack({"SKILL.md": TEXT, **{f"{number}/": "" for number in range(5 * MAX_FILES)}}), "more than 100 files"),
        (pack({"SKILL.md": TEXT, "bomb": b"\0" * (MAX_UNPACKED + 1)}), "when unpacked"),
        (pack({"SKILL.md": TEXT + "x" * MAX_TEXT}), "SKILL.md is larger"),
        (b"PK\x01\x02" * 20_001, "more than 100 files"),
    ],
)
def test_what_is_too_much_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(TooLarge, match=why):
        check_package("a.zip", content)


def test_a_head_may_be_written_in_the_ways_of_yaml() -> None:
    text = "---\r\nname: 'a-b'\r\ndescription: >\r\n  One\r\n  two: three.\r\nlicense: MIT\r\n---\r\nRest"

    assert read_front(text) == ("a-b", "One two: three.")


@pytest.mark.parametrize("description", ["plain", 'with "quotes" and \\', "two\nlines", "- # : é"])
def test_a_text_without_a_head_gets_one_that_says_the_same(description: str) -> None:
    text = with_front("# How\n", "a-b", description)

    assert read_front(text) == ("a-b", description)
    assert text.endswith("---\n\n# How\n")
    assert with_front(text, "a-b", "other") == text


def test_a_text_with_another_name_in_its_head_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="make them the same"):
        with_front(TEXT, "other", "x")


@given(st.binary(max_size=400), st.sampled_from(["a.zip", "a.md"]), st.integers(0, 500), st.integers(0, 255))
def test_any_bytes_are_taken_or_refused(content: bytes, filename: str, at: int, byte: int) -> None:
    packed = bytearray(pack({"SKILL.md": TEXT, "a/b": "x"}))
    packed[at % len(packed)] = byte
    for each in (content, bytes(packed), bytes(packed[: at % len(packed)])):
        with contextlib.suppress(InvalidRequest, TooLarge):
            assert check_package(filename, each).name
