"""A program tries to become more than it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from security.arena import ROOTLESS
from warren.domain.values import ExecKind
from warren.testing.subject import printed, run

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient
    from warren.testing.subject import Subject

pytestmark = pytest.mark.anyio

_STATUS = "print(open('/proc/self/status').read())"
_ATTEMPTS = {
    "setuid": "os.setuid(0)",
    "setgid": "os.setgid(0)",
    "setresuid": "os.setresuid(0, 0, 0)",
    "setreuid": "os.setreuid(0, 0)",
    "setgroups": "os.setgroups([0])",
    "setuid to nobody": "os.setuid(65534)",
    "chown": "open('f', 'w').close(); os.chown('f', 0, 0)",
    "nice": "os.setpriority(os.PRIO_PROCESS, 0, -10)",
    "real-time": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
    "out-of-memory score": "open('/proc/self/oom_score_adj', 'wb', 0).write(b'-1000')",
    "open files": "resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))",
    "locked memory": "resource.setrlimit(resource.RLIMIT_MEMLOCK, (-1, -1))",
    "core size": "resource.setrlimit(resource.RLIMIT_CORE, (-1, -1))",
    "chroot": "os.chroot('/tmp')",
    "a port of the system": "socket.create_server(('0.0.0.0', 80))",
    "raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "a new privilege": "assert libc.prctl(38, 0, 0, 0, 0) == 0",
    "a capability to the bounding set": "assert libc.prctl(23, 21) == 1",
    "an ambient capability": "assert libc.prctl(47, 2, 21, 0, 0) == 0",
    "dropping the filter": "assert libc.prctl(22, 0, 0, 0, 0) == 0",
    "a user map": "open('/proc/self/uid_map', 'wb', 0).write(b'0 0 1')",
    "a device": "os.mknod('d', 0o020666, os.makedev(1, 3))",
    "a block device": "os.mknod('b', 0o060666, os.makedev(7, 0))",
    "a file capability": "open('g', 'w').close(); os.setxattr('g', 'security.capability', bytes(20))",
    "a trusted attribute": "open('h', 'w').close(); os.setxattr('h', 'trusted.overlay.opaque', b'y')",
    "an immutable file": (
        "open('i', 'w').close(); fcntl.ioctl(os.open('i', os.O_RDONLY), 0x40086602, (0x10).to_bytes(8, 'little'))"
    ),
}


async def _status(agent: AgentClient, kind: ExecKind) -> dict[str, str]:
    if kind is ExecKind.ARGV:
        result = await run(agent, "", kind, argv=("cat", "/proc/self/status"))
    else:
        result = await run(agent, _STATUS, kind)
    return dict(line.split(":\t", 1) for line in result.stdout.decode().splitlines() if ":\t" in line)


@pytest.mark.parametrize("kind", [ExecKind.CELL, ExecKind.SCRIPT, ExecKind.ARGV])
async def test_every_process_is_sealed(subject: Subject, kind: ExecKind) -> None:
    async with subject.linked_sandbox() as agent:
        status = await _status(agent, kind)

    assert [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == ["0" * 16] * 5
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert set(status["Uid"].split() + status["Gid"].split()) == {"1000"}
    # A user's own group is also among those of a login; it is the sandbox's own inside.
    assert set(status["Groups"].split()) <= ({"65534", "1000"} if ROOTLESS else set())


async def test_nothing_raises_a_program_s_rights(subject: Subject) -> None:
    code = (
        "import ctypes, fcntl, json, os, resource, socket\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "done = []\n"
        f"for name, attempt in {_ATTEMPTS!r}.items():\n"
        "    try: exec(attempt)\n"
        "    except (OSError, ValueError, AssertionError): continue\n"
        "    done.append(name)\n"
        "print(json.dumps(done))"
    )
    async with subject.linked_sandbox() as agent:
        done = json.loads(await printed(agent, code))
        status = await _status(agent, ExecKind.CELL)

    assert done == []
    assert status["CapEff"] == "0" * 16


async def test_setuid_programs_gain_nothing(subject: Subject) -> None:
    """The host's own are shown, and a copy with the bit set is made; neither changes who runs it."""
    code = (
        "import glob, json, os, shutil, stat, subprocess\n"
        "shown = [p for p in glob.glob('/usr/bin/*') if os.stat(p).st_mode & (stat.S_ISUID | stat.S_ISGID)]\n"
        "shutil.copy(shutil.which('id'), 'id'); os.chmod('id', 0o6755)\n"
        "shutil.copy(shutil.which('id'), '/tmp/id'); os.chmod('/tmp/id', 0o6755)\n"
        "ids = [subprocess.run([p, '-u'], capture_output=True, text=True).stdout for p in ('./id', '/tmp/id')]\n"
        "su = [subprocess.run([p, '-c', 'id -u'], capture_output=True, stdin=subprocess.DEVNULL).stdout.decode()\n"
        "      for p in shown if p.endswith(('/su', '/runuser'))]\n"
        "flags = [line.split()[5] for line in open('/proc/self/mountinfo')]\n"
        "print(json.dumps([ids, su, flags]))"
    )
    async with subject.linked_sandbox() as agent:
        ids, su, flags = json.loads(await printed(agent, code))

    assert ids == ["1000\n", "1000\n"]
    assert not any(text.strip() == "0" for text in su)
    # Every mount says so itself, besides no_new_privs; the root holds nothing but folders.
    assert [line for line in flags[1:] if "nosuid" not in line.split(",")] == []


async def test_no_mount_but_devices_lets_devices_in(subject: Subject) -> None:
    code = "print(__import__('json').dumps([line.split()[4:6] for line in open('/proc/self/mountinfo')]))"
    async with subject.linked_sandbox() as agent:
        mounts = json.loads(await printed(agent, code))

    loose = {place for place, flags in mounts if "nodev" not in flags.split(",")}
    assert {place for place in loose if not place.startswith(("/dev/", "/proc/"))} <= {"/"}
    # Of several mounts on one place the last is the one that is seen.
    top = dict(mounts)
    writable = {place for place, flags in top.items() if "rw" in flags.split(",") and not place.startswith("/proc")}
    assert {place for place in writable if not place.startswith("/dev/")} == {"/workspace", "/tmp"}
