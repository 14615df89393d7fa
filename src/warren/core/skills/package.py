"""Skill packages: a zip with a SKILL.md, checked before any of it is stored. No I/O.

Nothing is unpacked here, except to see that it can be: the agent unpacks, inside the sandbox.
"""

from __future__ import annotations

import io
import re
import stat
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.core.skills.yaml_text import parse_yaml
from warren.domain.errors import InvalidRequest, TooLarge
from warren.domain.values import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.core.skills.yaml_text import Node

MAX_PACKAGE = 10 * MIB
MAX_FILES = 100
MAX_UNPACKED = 50 * MIB
MAX_TEXT = 512 * KIB
"""Of SKILL.md."""
MAX_DESCRIPTION = 1024
MAX_NAME = 64
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
SKILL_MD = "SKILL.md"
MARK = ".warren-skill"
"""A file that Warren puts beside SKILL.md, to recognise what is installed."""

_ENTRY = b"PK\x01\x02"
_MOST_ENTRIES = 20_000
"""Above this many entries, the archive is not even listed. Nested archives count too."""
_DEPTH = 16
_PACKED = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_JUNK = re.compile(r"(__MACOSX/.*)|(.*/)?\.DS_Store")
"""Files that macOS adds to archives; they are ignored."""
_PLAIN_DESCRIPTION = re.compile(r"^description:[ \t]+([^\s\"'|>&*!%@`{\[#])", re.MULTILINE)
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)(?:\r?\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A checked package."""

    name: str
    description: str
    content: bytes
    folder: str = ""
    """The folder of the skill in the package; empty for its root."""
    skill_md: str


def check_package(filename: str, content: bytes) -> Package:
    """Check an upload: a `.zip` or `.skill`, or a `.md` with a SKILL.md. Raises InvalidRequest and TooLarge."""
    if len(content) > MAX_PACKAGE:
        raise TooLarge(f"a skill may have {MAX_PACKAGE} bytes when packed")
    ending = filename.lower().rpartition(".")[2]
    if ending == "md":
        return pack_text(decode_text(content))
    if ending not in {"zip", "skill"}:
        raise InvalidRequest(f"{filename[:100]!r} is no skill: send a .zip, a .skill or a .md")
    if content.count(_ENTRY) > _MOST_ENTRIES:
        raise TooLarge(f"the package has more than {MAX_FILES} files")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = _check_members(archive)
            folder = _find_folder(members)
            text = decode_text(_read_all(archive, members, f"{folder}/{SKILL_MD}" if folder else SKILL_MD))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, ValueError, EOFError, OSError) as exc:
        raise InvalidRequest(f"the package is not a zip that can be unpacked: {str(exc)[:200]}") from exc
    name, description = read_front(text)
    return Package(name=name, description=description, content=content, folder=folder, skill_md=text)


def pack_text(text: str) -> Package:
    """Build a package from a SKILL.md alone. Raises InvalidRequest."""
    name, description = read_front(text)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        # Equal texts make equal packages: the time is always the earliest that a zip can have.
        member = zipfile.ZipInfo(SKILL_MD)
        member.external_attr = (stat.S_IFREG | 0o644) << 16
        archive.writestr(member, text, zipfile.ZIP_DEFLATED)
    return Package(name=name, description=description, content=packed.getvalue(), skill_md=text)


def read_text(content: bytes, folder: str) -> str:
    """Return the SKILL.md of a checked package."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return decode_text(archive.read(f"{folder}/{SKILL_MD}" if folder else SKILL_MD))


def is_text_alone(content: bytes) -> bool:
    """Whether a checked package has nothing but its SKILL.md."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.namelist() == [SKILL_MD]


def with_front(text: str, name: str, description: str) -> str:
    """Put name and description at the head of a SKILL.md without one. Raises InvalidRequest where the names differ."""
    if _FRONT.match(text) is None:
        quoted = description.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'---\nname: {name}\ndescription: "{quoted}"\n---\n\n{text}'
    found, _ = read_front(text)
    if found != name:
        raise InvalidRequest(f"the head of SKILL.md names the skill {found!r}, and not {name!r}: make them the same")
    return text


def read_front(text: str) -> tuple[str, str]:
    """Return name and description from the head of a SKILL.md. Raises InvalidRequest."""
    match = _FRONT.match(text)
    if match is None:
        raise InvalidRequest("SKILL.md must begin with a line ---, name: and description:, and a line ---")
    front = _parse_front(match[1])
    name, description = (front.get(key) for key in ("name", "description")) if isinstance(front, dict) else (None, None)
    if not isinstance(name, str) or len(name) > MAX_NAME or NAME.fullmatch(name) is None:
        raise InvalidRequest(
            "the head of SKILL.md must have a name: 1 to 64 lower-case letters and digits, with single hyphens between"
        )
    description = description.strip() if isinstance(description, str) else ""
    if not 0 < len(description) <= MAX_DESCRIPTION:
        raise InvalidRequest(f"the head of SKILL.md must have a description of 1 to {MAX_DESCRIPTION} characters")
    return name, description


def _parse_front(text: str) -> Node:
    """Parse the front matter of a SKILL.md. Raises InvalidRequest."""
    try:
        return parse_yaml(text)
    except ValueError as exc:
        # Authors write `description: Use it when: ...`, which YAML refuses and other readers of skills accept.
        try:
            return parse_yaml(_PLAIN_DESCRIPTION.sub(r"description: >-\n  \1", text))
        except ValueError:
            raise InvalidRequest(f"the head of SKILL.md cannot be read: {exc}") from exc


def decode_text(content: bytes) -> str:
    """Decode a SKILL.md. Raises InvalidRequest and TooLarge."""
    if len(content) > MAX_TEXT:
        raise TooLarge(f"SKILL.md is larger than {MAX_TEXT} bytes: move long parts to other files")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequest("SKILL.md is not UTF-8") from None
    if "\0" in text:
        raise InvalidRequest("SKILL.md holds a NUL character")
    return text


def _check_members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the files of an archive, once all may be unpacked. Raises InvalidRequest and TooLarge."""
    entries = archive.infolist()
    files = [each for each in entries if not each.is_dir()]
    if len(files) > MAX_FILES or len(entries) > 4 * MAX_FILES:
        raise TooLarge(f"the package has more than {MAX_FILES} files")
    if sum(each.file_size for each in entries) > MAX_UNPACKED:
        raise TooLarge(f"the package would be larger than {MAX_UNPACKED} bytes when unpacked")
    for each in entries:
        why = _find_fault(each)
        if why:
            raise InvalidRequest(f"{each.filename[:200]!r} in the package {why}")
    names = [each.filename for each in files]
    _check_distinct(names)
    return [each for each in files if _JUNK.fullmatch(each.filename) is None]


def _check_distinct(names: Sequence[str]) -> None:
    known = set(names)
    if len(known) < len(names):
        raise InvalidRequest("the package has a file twice")
    for name in names:
        parts = name.split("/")
        for length in range(1, len(parts)):
            if "/".join(parts[:length]) in known:
                raise InvalidRequest(f"{name[:200]!r} in the package has a file for a folder")


def _find_fault(member: zipfile.ZipInfo) -> str:
    """Return why a member may not be unpacked; empty where it may."""
    name = member.filename.removesuffix("/")
    parts = name.split("/")
    kind = stat.S_IFMT(member.external_attr >> 16)
    is_plain = kind in {0, stat.S_IFREG} or (kind == stat.S_IFDIR and member.is_dir())
    is_named = name.isprintable() and "\\" not in name and member.orig_filename == member.filename
    faults = (
        (not is_named, "has a name with characters that a name cannot have"),
        (not {"", ".", ".."}.isdisjoint(parts), "has a name that leads elsewhere"),
        (
            len(parts) > _DEPTH or any(len(part.encode()) > 255 for part in parts),
            "lies too deep, or its name is too long",
        ),
        (MARK in parts, "has a name that is Warren's own"),
        (member.flag_bits & 0x1, "is encrypted"),
        (member.compress_type not in _PACKED, "is packed in a way other than deflate"),
        (not is_plain, "is a link or a special file"),
    )
    return next((why for is_wrong, why in faults if is_wrong), "")


def _find_folder(files: Sequence[zipfile.ZipInfo]) -> str:
    names = {each.filename for each in files}
    if SKILL_MD in names:
        return ""
    tops = {name.partition("/")[0] for name in names}
    top = tops.pop() if len(tops) == 1 else ""
    if f"{top}/{SKILL_MD}" not in names:
        raise InvalidRequest("the package must have a SKILL.md at its root, or in the one folder that it has")
    return top


def _read_all(archive: zipfile.ZipFile, files: Sequence[zipfile.ZipInfo], wanted: str) -> bytes:
    """Read every file once, so that no damaged package is stored, and return the wanted one."""
    found = b""
    for each in files:
        with archive.open(each) as content:
            if each.filename == wanted:
                found = content.read(MAX_TEXT + 1)
            while content.read(MIB):
                pass  # The checksum is compared at the end, and no more comes than the archive declares.
    return found
