"""Engine checks: files, archives, terminals and ports."""

from __future__ import annotations

import hashlib
import io
import tarfile
from typing import TYPE_CHECKING

import anyio

from warren.domain.errors import Error, InvalidRequest, NotFound
from warren.domain.values import MIB
from warren.testing.subject import DEADLINE_S, printed, refused, request, run, text_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.core.agent.client import AgentClient, Terminal
    from warren.testing.subject import Subject

_BIG = 64 * MIB
_ESCAPES = ("../outside", "/etc/passwd", "a/../../outside", "out/passwd", "/proc/self/environ", "loop")


async def check_a_big_file_makes_the_round_trip(subject: Subject) -> None:
    """64 MiB go in and come out the same, and the file inside has the same hash."""
    block = hashlib.sha256(b"block").digest() * (MIB // 32)
    expected = hashlib.sha256()

    async def parts() -> AsyncIterator[bytes]:
        for number in range(_BIG // MIB):
            part = number.to_bytes(8, "big") + block[8:]
            expected.update(part)
            yield part

    async with subject.linked_sandbox() as agent:
        await agent.write("big", parts())
        digest = "import hashlib; print(hashlib.file_digest(open('big', 'rb'), 'sha256').hexdigest())"
        assert await printed(agent, digest) == expected.hexdigest()

        received, size = hashlib.sha256(), 0
        async for part in agent.read("big"):
            received.update(part)
            size += len(part)
        assert (size, received.digest()) == (_BIG, expected.digest())


async def check_files_are_written_read_moved_and_deleted(subject: Subject) -> None:
    """The ordinary operations do what they say, and a cell sees the same files."""
    async with subject.linked_sandbox() as agent:
        entry = await agent.write("sub/a.txt", b"hello")
        assert (entry.path, entry.type, entry.size) == ("sub/a.txt", "file", 5)
        assert await printed(agent, "print(open('sub/a.txt').read())") == "hello"
        assert b"".join([part async for part in agent.read("sub/a.txt", offset=1, length=3)]) == b"ell"

        await agent.move("sub/a.txt", "b.txt")
        entries, complete = await agent.list(".")
        assert ([entry.path for entry in entries], complete) == (["b.txt", "sub"], True)
        await agent.write("full/c", b"")
        await refused(Error, agent.delete("full"))
        await agent.delete("full", recursive=True)
        await agent.delete("b.txt")
        await refused(NotFound, agent.stat("b.txt"))


async def check_paths_do_not_leave_the_workspace(subject: Subject) -> None:
    """No path, with dots, absolute or through a link, reads or writes anything outside."""
    async with subject.linked_sandbox() as agent:
        await run(agent, "import os; os.symlink('/etc', 'out'); os.symlink('loop', 'loop')")
        for path in _ESCAPES:
            await refused(Error, agent.read_bytes(path, MIB))
            await refused(Error, agent.write(path, b"x"))


async def check_archives_go_in_and_out(subject: Subject) -> None:
    """A folder packs into a tar that unpacks to the same files; one that climbs out is refused whole."""
    async with subject.linked_sandbox() as agent:
        await agent.write("tree/a", b"1")
        await agent.write("tree/deep/b", b"22")
        packed = b"".join([part async for part in agent.pack("tree", "tar")])
        await agent.unpack("copy", packed, "tar")
        assert await text_file(agent, "copy/deep/b") == "22"

        evil = io.BytesIO()
        with tarfile.open(fileobj=evil, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("../evil"))
        message = await refused(InvalidRequest, agent.unpack("copy", evil.getvalue(), "tar"))
        assert "../evil" in message


async def check_a_terminal_echoes(subject: Subject) -> None:
    """A terminal echoes, has a size that can change, and returns its program's exit code."""
    async with subject.linked_sandbox() as agent:
        terminal = await agent.terminal("t1", argv=("bash", "--norc"), cols=90, rows=30)
        await terminal.send(b"stty size; echo mar$((40 + 2))ker\n")
        await _read_until(terminal, b"mar42ker", b"30 90")
        await terminal.resize(120, 40)
        await terminal.send(b"stty size; echo again$((1))\n")
        await _read_until(terminal, b"again1", b"40 120")
        await terminal.send(b"exit 5\n")

        assert await terminal.exit_code() == 5


async def check_a_port_is_reached(subject: Subject) -> None:
    """A server inside is reached through the channel; a port where nothing listens is not found."""
    server = (
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\n"
        # Held, so that no other process of the machine listens there.
        "silent = socket.socket()\nsilent.bind(('127.0.0.1', 0))\n"
        "print(s.getsockname()[1], silent.getsockname()[1], flush=True)\n"
        "c, _ = s.accept()\nwhile data := c.recv(65536): c.sendall(data.upper())\nc.close(); s.close()"
    )
    async with subject.linked_sandbox() as agent:
        async for event in agent.stream(request(server)):
            if event.kind == "stdout":
                port, silent = map(int, event.data.split())
                await _talk(agent, port)
            if event.result is not None:
                assert event.result.ok, event.result
        await refused(NotFound, agent.connect_port(silent))


async def _talk(agent: AgentClient, port: int) -> None:
    tunnel = await agent.connect_port(port)
    await tunnel.send(b"over the wall")
    answer = b""
    while len(answer) < 13:
        part = await tunnel.receive()
        assert part, f"the tunnel ended after {answer!r}"
        answer += part
    await tunnel.aclose()
    assert answer == b"OVER THE WALL"


async def _read_until(terminal: Terminal, *wanted: bytes) -> None:
    seen = b""
    with anyio.fail_after(DEADLINE_S):
        while not all(word in seen for word in wanted):
            part = await terminal.receive()
            assert part, f"the terminal ended after {seen!r}"
            seen += part
