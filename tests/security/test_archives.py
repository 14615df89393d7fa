"""An archive from a stranger: members that climb out, lead out, are devices, or are far larger than they look."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from typing import TYPE_CHECKING

import anyio
import pytest

from security.arena import stands
from warren.domain.errors import Error, InvalidRequest
from warren.domain.values import MIB, Limits
from warren.testing.subject import printed, refused

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient
    from warren.testing.subject import Subject

pytestmark = pytest.mark.anyio

_SEEN = (
    "import json, os\n"
    "print(json.dumps(sorted(os.path.join(p, f) for top in ('/workspace', '/tmp') for p, ds, fs in os.walk(top)\n"
    "                        for f in fs + ds)))"
)


def _tar(*members: tarfile.TarInfo, kind: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size) if member.isreg() else None)
    return buffer.getvalue()


def _member(
    name: str, kind: bytes = tarfile.REGTYPE, agent: str = "", size: int = 0, mode: int = 0o644
) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size, member.mode = kind, agent, size, mode
    return member


def _zip(*names: str, agent: str | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        for name in names:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o120777 if agent else 0o100644) << 16
            package.writestr(entry, agent or "x")
    return buffer.getvalue()


LINK, HARD = tarfile.SYMTYPE, tarfile.LNKTYPE
HOSTILE: dict[str, tuple[str, bytes]] = {
    "absolute": ("tar", _tar(_member("/tmp/evil", size=1))),
    "climbing": ("tar", _tar(_member("../evil", size=1))),
    "climbing later": ("tar", _tar(_member("a/b/../../../evil", size=1))),
    "climbing by a link name": ("tar", _tar(_member("in", LINK, ".."), _member("in/evil", size=1))),
    "through a link it brings": ("tar", _tar(_member("out", LINK, "/tmp"), _member("out/evil", size=1))),
    "through two links": (
        "tar",
        _tar(_member("a", LINK, "."), _member("a/b", LINK, "/tmp"), _member("b/evil", size=1)),
    ),
    "overwriting a link": ("tar", _tar(_member("evil", LINK, "/tmp/evil"), _member("evil", size=1))),
    "hard link outside": ("tar", _tar(_member("evil", HARD, "/etc/passwd"))),
    "hard link climbing": ("tar", _tar(_member("evil", HARD, "../../etc/passwd"))),
    "hard link to a link it brings": (
        "tar",
        _tar(_member("l", LINK, "/etc/passwd"), _member("evil", HARD, "l"), _member("evil", size=1)),
    ),
    "character device": ("tar", _tar(_member("evil", tarfile.CHRTYPE))),
    "block device": ("tar", _tar(_member("evil", tarfile.BLKTYPE))),
    "pipe": ("tar", _tar(_member("evil", tarfile.FIFOTYPE))),
    "zip absolute": ("zip", _zip("/tmp/evil")),
    "zip climbing": ("zip", _zip("../evil")),
    "zip climbing later": ("zip", _zip("a/../../evil")),
    "zip link outside": ("zip", _zip("evil", agent="/etc/passwd")),
    "tar.gz climbing": ("tar.gz", gzip.compress(_tar(_member("../evil", size=1)))),
}


async def _unpack(agent: AgentClient, data: bytes, form: str) -> Error | None:
    """Unpack it, and give what it was refused with, if it was."""
    try:
        with anyio.fail_after(20):
            await agent.unpack("here", data, form)
    except Error as refusal:
        return refusal
    return None


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_member_that_leads_out_goes_nowhere(subject: Subject, name: str) -> None:
    """Refused whole, or unpacked so that nothing outside the folder is made, changed or shown."""
    form, data = HOSTILE[name]
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await agent.mkdir("here")
        before = await printed(agent, _SEEN)
        refusal = await _unpack(agent, data, form)
        if refusal is not None:
            assert isinstance(refusal, InvalidRequest), refusal
            assert await printed(agent, _SEEN) == before
        after = await printed(agent, _SEEN)
        assert '"/tmp/evil"' not in after
        assert '"/workspace/evil"' not in after
        for path in ("here/evil", "here/out/evil", "here/l"):
            try:
                assert b"sandbox:x:" not in await agent.read_bytes(path, 4096)
            except Error:
                continue
        await stands(subject, handle)


@pytest.mark.parametrize("name", ["absolute", "climbing", "climbing later", "character device", "zip climbing"])
async def test_the_refusal_names_the_member(subject: Subject, name: str) -> None:
    form, data = HOSTILE[name]
    async with subject.linked_sandbox() as agent:
        assert "evil" in await refused(InvalidRequest, agent.unpack("here", data, form))


async def test_modes_and_owners_of_an_archive_give_no_rights(subject: Subject) -> None:
    member = _member("tool", size=4, mode=0o6777)
    member.uid = member.gid = 0
    member.uname = "root"
    async with subject.linked_sandbox() as agent:
        try:
            await agent.unpack("here", _tar(member), "tar")
        except Error:
            return
        status = await printed(agent, "import os; s = os.stat('here/tool'); print(oct(s.st_mode), s.st_uid)")

    assert status.endswith(" 1000")
    assert int(status.split()[0], 8) & 0o6000 == 0


async def test_a_compressed_bomb_stops_at_the_disk_limit(subject: Subject) -> None:
    """A hundred megabytes of zeros in less than one: refused when the disk is full, and nothing of it stays."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        archive.addfile(_member("zeros", size=96 * MIB), io.BytesIO(bytes(96 * MIB)))
    tarred = gzip.compress(plain.getvalue(), 1)
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as package:
        for number in range(3):
            package.writestr(f"zeros{number}", bytes(32 * MIB))
    del plain
    async with subject.sandbox(limits=Limits(disk_bytes=32 * MIB)) as handle, subject.agent(handle) as agent:
        for form, data in (("tar.gz", tarred), ("zip", zipped.getvalue())):
            with anyio.fail_after(60):
                message = await refused(Error, agent.unpack("here", data, form))
            assert message
        usage = await subject.engine.usage(handle)
        assert usage.disk_bytes is None or usage.disk_bytes < 16 * MIB
        await stands(subject, handle)


async def test_an_archive_of_countless_members_stops_at_the_inode_limit(subject: Subject) -> None:
    data = _tar(*(_member(f"d{number}/f") for number in range(3000)), kind=tarfile.USTAR_FORMAT)
    async with subject.sandbox(limits=Limits(disk_inodes=1024)) as handle, subject.agent(handle) as agent:
        with anyio.fail_after(60):
            await refused(Error, agent.unpack("here", data, "tar"))
        await stands(subject, handle)


def _lying_zip() -> bytes:
    """Say one byte, hold a thousand; and the other way round."""
    data = bytearray(_zip("a", "b"))
    for offset in (data.find(b"PK\x01\x02"), data.rfind(b"PK\x01\x02")):
        struct.pack_into("<I", data, offset + 24, 1 << 30)
    return bytes(data)


BROKEN: dict[str, tuple[str, bytes]] = {
    "noise as tar": ("tar", bytes(range(256)) * 40),
    "noise as tar.gz": ("tar.gz", bytes(range(256)) * 40),
    "noise as zip": ("zip", bytes(range(256)) * 40),
    "half a tar": ("tar", _tar(_member("a", size=5000))[:2000]),
    "half a tar.gz": ("tar.gz", gzip.compress(_tar(_member("a", size=50000)))[:-20]),
    "a zip that lies": ("zip", _lying_zip()),
    "a zip without a directory": ("zip", _zip("a")[:40]),
    "a name with a NUL": ("zip", _zip("a").replace(b"a", b"\0")),
    "a tar of headers only": ("tar", _tar(_member("a", size=0))[:512].replace(b"00000000000\0", b"77777777777\0", 1)),
    "a negative size": ("tar", _tar(_member("a"))[:124] + b"\xff" * 12 + _tar(_member("a"))[136:]),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_archive_is_an_error_and_no_more(subject: Subject, name: str) -> None:
    form, data = BROKEN[name]
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        refusal = await _unpack(agent, data, form)
        assert refusal is None or "\n" not in str(refusal)
        await stands(subject, handle)
