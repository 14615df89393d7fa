"""A program makes every system call that a sandbox has no use for, by number."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING

import pytest

from security import calls
from security.arena import report
from warren.domain.values import ExecKind
from warren.testing.subject import printed, run

if TYPE_CHECKING:
    from warren.testing.subject import Subject

pytestmark = pytest.mark.anyio

REFUSED = {errno.EPERM, errno.ENOSYS}
NO_SUCH_SOCKET = {errno.EPERM, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT}
VANTAGES = (ExecKind.SCRIPT, ExecKind.ARGV)


@pytest.mark.parametrize("kind", VANTAGES)
async def test_dangerous_system_calls_are_refused(subject: Subject, kind: ExecKind) -> None:
    async with subject.linked_sandbox() as agent:
        answered = await report(agent, "calls", calls.refused_calls(), kind=kind)

    assert len(answered) == len(calls.refused_calls())
    assert [(name, number) for name, number in answered if number not in REFUSED] == []


async def test_no_namespace_can_be_made(subject: Subject) -> None:
    async with subject.linked_sandbox() as agent:
        answered = await report(agent, "calls", calls.namespace_clones(), kind=ExecKind.ARGV)

    assert {number for _, number in answered} == {errno.EPERM}, answered


async def test_sockets_are_unix_or_ip_only(subject: Subject) -> None:
    async with subject.linked_sandbox() as agent:
        answered = await report(agent, "calls", calls.sockets(), kind=ExecKind.ARGV)

    assert [(name, number) for name, number in answered if number not in NO_SUCH_SOCKET] == []


@pytest.mark.parametrize("kind", VANTAGES)
async def test_the_agent_cannot_be_slowed_down(subject: Subject, kind: ExecKind) -> None:
    """The agent holds the clocks of all programs, and has their uid."""
    async with subject.linked_sandbox() as agent:
        answered = await report(agent, "slow_agent", kind=kind)

    assert {name: number for name, number in answered.items() if number != errno.EPERM} == {}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86_64 has a second door for 32-bit programs")
async def test_the_door_for_32_bit_programs_is_shut(subject: Subject) -> None:
    """`int 0x80` reaches another table of calls, past numbers that mean something else here."""
    code = (
        "import ctypes, mmap\n"
        # mov eax, 20 (getpid by the 32-bit table); int 0x80; ret
        "page = mmap.mmap(-1, 4096, prot=7); page.write(bytes.fromhex('b814000000cd80c3'))\n"
        "print(ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())"
    )
    async with subject.linked_sandbox() as agent:
        result = await run(agent, code, ExecKind.SCRIPT)

    assert not result.ok
    assert result.exit_code is not None
    assert result.exit_code < 0
    assert result.stdout == b""
    assert result.hint


async def test_nothing_can_be_typed_into_a_terminal(subject: Subject) -> None:
    code = (
        "import fcntl, json, os, pty\n"
        "ours, theirs = pty.openpty()\n"
        "def attempt(request, argument):\n"
        "    try: fcntl.ioctl(theirs, request, argument)\n"
        "    except OSError as error: return error.errno\n"
        "    return 0\n"
        "print(json.dumps([attempt(0x5412, b'x'), attempt(0x541C, b'\\x02'), attempt(0x5423, b'\\0' * 4)]))"
    )
    async with subject.linked_sandbox() as agent:
        assert json.loads(await printed(agent, code)) == [errno.EPERM] * 3


async def test_what_ordinary_programs_need_is_allowed(subject: Subject) -> None:
    """A wall that stops everything proves nothing: threads, processes, sockets and shared memory work."""
    code = (
        "import concurrent.futures, multiprocessing, os, signal, socket, subprocess, tempfile, threading\n"
        "from multiprocessing import shared_memory\n"
        "with concurrent.futures.ThreadPoolExecutor(4) as pool: assert sum(pool.map(abs, range(100))) == 4950\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]\n"
        "block = shared_memory.SharedMemory(create=True, size=4096); block.close(); block.unlink()\n"
        "assert subprocess.run(['true']).returncode == 0\n"
        "server = socket.create_server(('127.0.0.1', 0)); socket.create_connection(server.getsockname()).close()\n"
        "assert socket.socketpair()\n"
        "os.mkfifo('/tmp/fifo'); os.memfd_create('m'); os.eventfd(0)\n"
        "print('fine')"
    )
    async with subject.linked_sandbox() as agent:
        result = await run(agent, code, ExecKind.SCRIPT, timeout_s=60)

    assert result.stdout == b"fine\n", result.stderr.decode()
