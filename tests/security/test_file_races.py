"""A program swaps files and folders for links that lead out, while files are read and written from outside."""

from __future__ import annotations

import contextlib
import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

import anyio
import pytest

from security.arena import program, stands
from warren.domain.errors import Error
from warren.domain.values import ExecKind
from warren.testing.subject import printed, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from warren.core.agent.client import AgentClient
    from warren.testing.subject import Subject

pytestmark = pytest.mark.anyio

ROUNDS = 60
"""Of each operation; the racer makes thousands of swaps meanwhile."""
_PREPARE = program("racer").split("if not os.path.exists", 1)[0] + "prepare()"
_OUTSIDE = (
    "import json, os\n"
    "print(json.dumps({os.path.join(p, f): open(os.path.join(p, f)).read() for p, _, fs in os.walk('/tmp/outside')\n"
    "                  for f in fs}, sort_keys=True))"
)
_UNTOUCHED = '{"/tmp/outside/file": "OUTSIDE", "/tmp/outside/sub/file": "OUTSIDE"}'


@contextlib.asynccontextmanager
async def racing(agent: AgentClient) -> AsyncIterator[None]:
    """Run the racer for the length of a block, and assert afterwards that it really ran and nothing outside changed."""
    started = await run(agent, program("racer"), ExecKind.SCRIPT, timeout_s=20)
    assert started.ok, started
    yield
    with anyio.fail_after(20):
        await run(agent, "touch /tmp/stop; until test -s /tmp/turns; do sleep 0.01; done", ExecKind.SHELL, timeout_s=15)
    assert int(await printed(agent, "print(open('/tmp/turns').read())")) > 100
    assert await printed(agent, _OUTSIDE) == _UNTOUCHED


async def _attempt(operation: Awaitable[object]) -> object:
    """Do it; a refusal is as good as an honest answer."""
    try:
        with anyio.fail_after(20):
            return await operation
    except Error:
        return None


async def _collect(parts: AsyncIterator[bytes]) -> bytes:
    return b"".join([part async for part in parts])


READS: dict[str, Callable[[AgentClient], Awaitable[object]]] = {
    "read": lambda agent: agent.read_bytes("tree/folder/file", 1000),
    "read deep": lambda agent: agent.read_bytes("tree/folder/sub/file", 1000),
    "read a swapped file": lambda agent: agent.read_bytes("tree/file", 1000),
    "read by an absolute path": lambda agent: agent.read_bytes("/workspace/tree/folder/sub/../file", 1000),
    "pack": lambda agent: _collect(agent.pack("tree", "tar")),
    "pack the folder": lambda agent: _collect(agent.pack("tree/folder", "tar")),
    "pack as zip": lambda agent: _collect(agent.pack("tree", "zip")),
    "search": lambda agent: agent.search("tree", text="OUT"),
    "search the folder": lambda agent: agent.search("tree/folder", regex="O[U]T"),
}


async def test_reading_never_reads_outside(subject: Subject) -> None:
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        async with racing(agent):
            honest = 0
            for _ in range(ROUNDS):
                for name, read in READS.items():
                    got = await _attempt(read(agent))
                    if isinstance(got, bytes):
                        honest += b"inside" in _plain(got)
                        assert b"OUTSIDE" not in _plain(got), name
                    elif got is not None:
                        assert got == ((), True) or not got[0], (name, got)  # type: ignore[index]
            # The race must not be won by refusing everything.
            assert honest > 0
        await stands(subject, handle)


async def test_looking_never_looks_outside(subject: Subject) -> None:
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await run(agent, "import os; os.makedirs('/tmp/outside/sub')")
        await run(agent, _PREPARE.replace('os.makedirs("/tmp/outside/sub")', "pass"))
        await run(agent, "open('/tmp/outside/tell-tale', 'w').close()")
        await run(agent, program("racer"), ExecKind.SCRIPT, timeout_s=20)
        for _ in range(ROUNDS):
            for listed in (
                await _attempt(agent.list("tree", recursive=True)),
                await _attempt(agent.list("tree/folder")),
            ):
                assert "tell-tale" not in str(listed)
            assert await _attempt(agent.stat("tree/folder/tell-tale")) is None
            assert "tell-tale" not in str(await _attempt(agent.search("tree", name="tell*")))
        await run(agent, "touch /tmp/stop", ExecKind.SHELL)
        await stands(subject, handle)


def _make_archives() -> tuple[bytes, bytes]:
    tar, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name in ("file", "sub/file", "sub/extra"):
            member = tarfile.TarInfo(name)
            member.size = 6
            archive.addfile(member, io.BytesIO(b"inside"))
    with zipfile.ZipFile(zipped, "w") as package:
        package.writestr("file", "inside")
        package.writestr("more/file", "inside")
    return tar.getvalue(), zipped.getvalue()


_ARCHIVE, _ZIP = _make_archives()
WRITES: dict[str, Callable[[AgentClient, int], Awaitable[object]]] = {
    "write": lambda agent, n: agent.write(f"tree/folder/new{n}", b"from outside"),
    "overwrite": lambda agent, _: agent.write("tree/folder/file", b"inside"),
    "overwrite a swapped file": lambda agent, _: agent.write("tree/file", b"inside"),
    "append": lambda agent, _: agent.write("tree/folder/sub/file", b"", create="append"),
    "create": lambda agent, n: agent.write(f"tree/folder/sub/only{n}", b"x", create="exclusive"),
    "make folders": lambda agent, n: agent.mkdir(f"tree/folder/sub/made{n}/deep"),
    "move in": lambda agent, n: agent.move("mine", f"tree/folder/sub/moved{n}"),
    "move out of it": lambda agent, n: agent.move("tree/folder/sub/file", f"stolen{n}"),
    "move over": lambda agent, _: agent.move("mine", "tree/folder/file", overwrite=True),
    "delete": lambda agent, _: agent.delete("tree/folder/sub/file"),
    "delete a tree": lambda agent, _: agent.delete("tree/folder/sub", recursive=True),
    "unpack": lambda agent, _: agent.unpack("tree/folder", _ARCHIVE, "tar"),
    "unpack deep": lambda agent, _: agent.unpack("tree/folder/sub", _ZIP, "zip"),
}


@pytest.mark.parametrize("name", WRITES)
async def test_writing_never_writes_outside(subject: Subject, name: str) -> None:
    """`racing` compares the outside, byte by byte and name by name, with what it was."""
    again = (
        "import os\nopen('/workspace/mine', 'w').write('mine')\n"
        "for place in ('/workspace/tree/folder', '/workspace/tree/folder.link'):\n"
        "    try:\n"
        "        if not os.path.islink(place):\n"
        "            os.makedirs(place + '/sub', exist_ok=True)\n"
        "            open(place + '/sub/file', 'x').write('inside')\n"
        "    except OSError: pass"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent, racing(agent):
        for turn in range(ROUNDS):
            if turn % 10 == 0:
                await run(agent, again)
            await _attempt(WRITES[name](agent, turn))
    del handle


async def test_a_hard_link_shows_only_what_the_program_could_read_itself(subject: Subject) -> None:
    """Nothing of the host can be linked into the workspace, so that the agent would serve it."""
    code = (
        "import json, os\nmade = []\n"
        "for number, source in enumerate(['/etc/passwd', '/usr/bin/env', '/opt/warren/warren/guest/wire.py',\n"
        "                                 '/proc/1/environ', '/dev/zero', '/tmp/other']):\n"
        "    open('/tmp/other', 'w').close()\n"
        "    try: os.link(source, f'linked{number}'); made.append(source)\n"
        "    except OSError: pass\n"
        "print(json.dumps(made))"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        assert await printed(agent, code) == "[]"
        await stands(subject, handle)


async def test_links_to_odd_places_are_not_followed(subject: Subject) -> None:
    """Magic links, devices, pipes and sockets in the workspace neither lead anywhere nor block."""
    targets = (
        "/proc/self/root/etc/passwd", "/proc/1/root", "/proc/self/fd/0", "/proc/self/cwd/../etc/passwd", "/dev/zero",
        "/dev/stdin", "/dev/fd/3", "../../etc/passwd", "/workspace/../etc/passwd", "loop", "/", "..",
    )  # fmt: skip
    code = (
        f"import os, socket\nfor n, target in enumerate({targets!r}): os.symlink(target, f'link{{n}}')\n"
        "os.symlink('loop', 'loop')\nos.mkfifo('fifo')\nsocket.socket(socket.AF_UNIX).bind('socket')\n"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        assert (await run(agent, code)).ok
        names = [*(f"link{number}" for number in range(len(targets))), "loop", "fifo", "socket"]
        for name in names:
            assert await _attempt(agent.read_bytes(name, 1000)) is None, name
            assert await _attempt(agent.read_bytes(f"{name}/passwd", 1000)) is None, name
            assert await _attempt(agent.list(name)) is None, name
        packed = await _collect(agent.pack(".", "tar"))
        assert b"root:x:" not in packed
        await agent.delete("fifo")
        await stands(subject, handle)


def _plain(data: bytes) -> bytes:
    """Undo compression, so that a marker can be looked for."""
    if data[:2] != b"PK":
        return data
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        return b"".join(package.read(name) for name in package.namelist())
