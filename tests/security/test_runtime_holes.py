"""The classes of hole that container runtimes had: the supervisor's program, leaked descriptors, masked paths."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING

import pytest

from security.arena import ROOTLESS, report, stands
from warren.domain.errors import Error
from warren.domain.values import ExecKind
from warren.testing.subject import printed, run

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient
    from warren.testing.subject import Subject

pytestmark = pytest.mark.anyio

WAYS = ["write", "append", "truncate", "chmod", "chown", "times", "replace", "rename", "unlink", "link over", "symlink"]


def _digest(folder: str) -> str:
    digest = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            digest.update(f"{place}/{name}".encode())
            with open(os.path.join(place, name), "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()


async def test_the_program_of_the_supervisor_cannot_be_overwritten(subject: Subject, data_dir: str) -> None:
    """CVE-2019-5736: through /proc/…/exe a container reached the runtime's own file on the host, and wrote to it."""
    guest = os.path.join(data_dir, "local", "guest")
    before = _digest(guest)
    code = (
        "import ctypes, json, os, sys\n"
        "def attempt(path, flags):\n"
        "    try: fd = os.open(path, flags)\n"
        "    except OSError: return False\n"
        "    try: os.write(fd, b'#!/bin/false')\n"
        "    except OSError: return False\n"
        "    return True\n"
        "exes = [f'/proc/{name}/exe' for name in os.listdir('/proc') if name.isdigit()] + ['/proc/self/exe']\n"
        "files = exes + [sys.executable, os.path.realpath(sys.executable), json.__file__, os.__file__]\n"
        "files += [m.__file__ for n, m in sys.modules.items() if n.startswith('warren') and hasattr(m, '__file__')]\n"
        # The class also needs a descriptor that was opened for reading and is opened again for writing later.
        "held = []\n"
        "for path in files:\n"
        "    try: held.append(os.open(path, os.O_RDONLY))\n"
        "    except OSError: pass\n"
        "files += [f'/proc/self/fd/{fd}' for fd in held]\n"
        "print(json.dumps([path for path in files for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC,\n"
        "                  os.O_WRONLY | os.O_APPEND) if attempt(path, flags)]))"
    )
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        for kind in (ExecKind.CELL, ExecKind.SCRIPT):
            result = await run(agent, code, kind)
            assert json.loads(result.stdout) == [], result
        modules = "/opt/warren/warren/guest"
        done = await report(
            agent, "touch", [modules, f"{modules}/agent.py", "/opt/warren", "/opt/image/bin/python"], WAYS
        )
        assert not any(done.values()), done
        await stands(subject, handle)
    assert _digest(guest) == before


async def test_no_process_holds_a_descriptor_of_the_host(subject: Subject) -> None:
    """CVE-2024-21626: a folder of the host, left open, served as an escape through /proc/self/fd/N."""
    code = (
        "import json, os\n"
        "seen = []\n"
        "for name in os.listdir('/proc'):\n"
        "    if not name.isdigit(): continue\n"
        "    for what in ('fd', 'task', 'map_files'):\n"
        "        try: entries = os.listdir(f'/proc/{name}/{what}')\n"
        "        except OSError: continue\n"
        "        for entry in entries if what != 'task' else ():\n"
        "            try: seen.append([name, what, os.readlink(f'/proc/{name}/{what}/{entry}')])\n"
        "            except OSError: pass\n"
        "    for what in ('cwd', 'root', 'exe'):\n"
        "        try: seen.append([name, what, os.readlink(f'/proc/{name}/{what}')])\n"
        "        except OSError: pass\n"
        "print(json.dumps(seen))"
    )
    async with subject.linked_sandbox() as agent:
        for kind in (ExecKind.CELL, ExecKind.SCRIPT):
            seen = json.loads((await run(agent, code, kind)).stdout)
            assert seen
            folders = {target for _, what, target in seen if what in ("fd", "cwd", "root")}
            assert {target for target in folders if not target.startswith(("pipe:", "socket:", "anon_inode:"))} <= {
                "/", "/workspace", "/dev/null", "/memfd:claim (deleted)",
                *(target for target in folders if target.startswith(("/proc/", "/workspace/", "/tmp/"))),
            }, seen  # fmt: skip


async def test_a_descriptor_as_working_folder_leads_nowhere(subject: Subject) -> None:
    """Every descriptor there could be is tried as the folder to work in, and to climb from."""
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        await run(agent, "import os\nfor n in range(64): os.symlink(f'/proc/self/fd/{n}', f'fd{n}')")
        for number in range(0, 64, 7):
            for cwd in (f"/proc/self/fd/{number}", f"/proc/1/fd/{number}", f"fd{number}", f"fd{number}/../../.."):
                for kind in (ExecKind.SHELL, ExecKind.CELL):
                    code = "pwd; ls -a" if kind is ExecKind.SHELL else "import os; print(os.getcwd())"
                    try:
                        result = await run(agent, code, kind, cwd=cwd, timeout_s=10)
                    except Error:
                        continue
                    if result.ok and result.stdout:
                        assert result.stdout.startswith(b"/workspace"), (cwd, result)
        for cwd in ("..", "/", "/tmp/..", "/etc", "../../etc", "/proc/1/root", "/proc/1/cwd"):
            with pytest.raises(Error):
                await run(agent, "pwd", ExecKind.SHELL, cwd=cwd, timeout_s=10)
        await stands(subject, handle)


async def _swap_null(agent: AgentClient) -> list[str]:
    code = (
        "import json, os, socket, subprocess\n"
        "done = []\n"
        "def attempt(name, action):\n"
        "    try: action()\n"
        "    except OSError: return\n"
        "    done.append(name)\n"
        "attempt('unlink null', lambda: os.unlink('/dev/null'))\n"
        "attempt('rename null', lambda: os.rename('/dev/null', '/dev/nul'))\n"
        "attempt('link over null', lambda: os.symlink('/proc/sys/kernel/core_pattern', '/dev/null'))\n"
        "attempt('replace null', lambda: os.rename('/tmp/x', '/dev/null'))\n"
        "attempt('file in dev', lambda: open('/dev/made', 'x').close())\n"
        "attempt('folder in dev', lambda: os.mkdir('/dev/made'))\n"
        "attempt('link in dev', lambda: os.symlink('/', '/dev/made'))\n"
        "attempt('swap console', lambda: os.symlink('/dev/null', '/dev/console'))\n"
        "attempt('swap pts', lambda: os.rename('/dev/pts', '/dev/pst'))\n"
        "attempt('swap ptmx', lambda: os.unlink('/dev/ptmx'))\n"
        "attempt('link in proc', lambda: os.symlink('/', '/proc/made'))\n"
        "attempt('unmask', lambda: os.unlink('/proc/kcore'))\n"
        "attempt('rename masked', lambda: os.rename('/proc/kcore', '/proc/core'))\n"
        "attempt('replace fd', lambda: os.unlink('/dev/fd'))\n"
        "for tool in (['mount', '--bind', '/tmp', '/proc/sys'], ['umount', '/proc/kcore'], ['umount', '/proc/sys'],\n"
        "             ['mount', '-o', 'remount,rw', '/proc/sys'], ['mount', '-o', 'remount,rw,bind', '/'],\n"
        "             ['unshare', '-Urm', 'true'], ['umount', '-l', '/workspace']):\n"
        "    try:\n"
        "        if subprocess.run(tool, capture_output=True).returncode == 0: done.append(' '.join(tool))\n"
        "    except FileNotFoundError: pass\n"
        "print(json.dumps(done))"
    )
    done: list[str] = json.loads(await printed(agent, code))
    return done


async def test_masks_and_devices_cannot_be_swapped(subject: Subject) -> None:
    """CVE-2025-31133: /dev/null was replaced by a link, and the runtime showed the link's target as a mask."""
    async with subject.sandbox() as handle, subject.agent(handle) as agent:
        assert await _swap_null(agent) == []
        check = "import os; print([os.major(os.stat(p).st_rdev) for p in ('/dev/null', '/proc/kallsyms')])"
        assert await printed(agent, check) == "[1, 1]"
        await stands(subject, handle)


async def test_a_later_sandbox_is_not_affected_by_what_an_earlier_one_did_to_paths(subject: Subject) -> None:
    """The zygote's root is shared by all; nothing that one sandbox does to /dev, /proc or /tmp is there in the next."""
    async with subject.linked_sandbox() as first:
        await _swap_null(first)
        await run(first, "import os; os.symlink('/', '/tmp/trap'); os.symlink('/etc', '/workspace/trap')")
        async with subject.linked_sandbox() as second:
            seen = await report(second, "look")

    assert seen["tmp"] == []
    assert "made" not in seen["dev"]
    assert "kcore" not in str(seen["search"]["devices"])


@pytest.mark.skipif(ROOTLESS, reason="an ordinary user's workspaces are in memory and have no device")
async def test_the_disk_under_a_workspace_cannot_be_opened(subject: Subject) -> None:
    """A filesystem whose device can be written to is a way into the host's kernel."""
    code = (
        "import glob, json, os\n"
        "mine = [line.split() for line in open('/proc/self/mountinfo') if ' /workspace ' in line][0]\n"
        "major, minor = map(int, mine[2].split(':'))\n"
        "opened = []\n"
        "for path in [*glob.glob('/dev/loop*'), '/tmp/node', '/workspace/node']:\n"
        "    try: os.mknod(path, 0o060666, os.makedev(major, minor))\n"
        "    except OSError: pass\n"
        "    try: opened.append(os.open(path, os.O_RDONLY))\n"
        "    except OSError: pass\n"
        "print(json.dumps([major, opened]))"
    )
    async with subject.linked_sandbox() as agent:
        major, opened = json.loads(await printed(agent, code))

    assert major == 7
    assert opened == []


async def test_other_processes_memory_and_descriptors_stay_theirs(subject: Subject) -> None:
    """By /proc and by pidfd: neither the agent nor the forkserver lets anything out."""
    code = (
        "import ctypes, json, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def read(path):\n"
        "    try: fd = os.open(path, os.O_RDONLY)\n"
        "    except OSError: return False\n"
        "    try: return bool(os.read(fd, 1))\n"
        "    except OSError: return False\n"
        "    finally: os.close(fd)\n"
        "pids = [int(name) for name in os.listdir('/proc') if name.isdigit()]\n"
        "closed = [pid for pid in pids if not read(f'/proc/{pid}/maps')]\n"
        "got = []\n"
        "for pid in closed:\n"
        "    pidfd = os.pidfd_open(pid)\n"
        "    for number in range(16):\n"
        "        if libc.syscall(438, pidfd, number, 0) >= 0: got.append(['getfd', pid, number])\n"
        "        if read(f'/proc/{pid}/fd/{number}'): got.append(['fd', pid, number])\n"
        "        try: got.append([os.readlink(f'/proc/{pid}/fd/{number}'), pid, number])\n"
        "        except OSError: pass\n"
        "    names = ('mem', 'environ', 'maps', 'smaps', 'auxv', 'syscall', 'stack', 'io', 'root/etc/passwd')\n"
        "    got += [[name, pid] for name in names if read(f'/proc/{pid}/{name}')]\n"
        "    for name in ('cwd', 'root', 'exe'):\n"
        "        try: got.append([os.readlink(f'/proc/{pid}/{name}'), pid])\n"
        "        except OSError: pass\n"
        "print(json.dumps([sorted(closed), got]))"
    )
    async with subject.linked_sandbox() as agent:
        closed, got = json.loads((await run(agent, code)).stdout)

    assert 1 in closed
    assert len(closed) >= 2, "the forkserver can be looked into"
    assert got == []
