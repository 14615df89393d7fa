"""A program looks for the host, for its neighbours and for ways to reach either."""

from __future__ import annotations

import json
import os
import sys
import uuid
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from security.arena import PROGRAMS, ROOTLESS, report
from warren.domain.values import ExecKind
from warren.testing.subject import printed, run

if TYPE_CHECKING:
    from security.canaries import Host
    from warren.domain.values import Handle
    from warren.testing.subject import Subject

pytestmark = pytest.mark.anyio

VANTAGES = (ExecKind.CELL, ExecKind.SCRIPT, ExecKind.ARGV)
"""A cell is in the kernel's process, a script is forked from warm imports, a command is a program of its own."""
DEVICES = {"full", "null", "ptmx", "random", "tty", "urandom", "zero"}
CHANGES = (
    "write",
    "append",
    "truncate",
    "chmod",
    "chown",
    "times",
    "replace",
    "rename",
    "unlink",
    "link over",
    "symlink",
)
ENVIRONMENT = {
    "COLUMNS", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "GIT_PAGER", "HOME", "LANG", "LC_CTYPE", "LINES", "LOGNAME",
    "MPLCONFIGDIR", "OLDPWD", "PAGER", "PATH", "PWD", "PYTHONUNBUFFERED", "SHELL", "SHLVL", "TERM", "TMPDIR", "USER",
    "WARREN_EXECUTION", "XDG_CACHE_HOME", "_",
}  # fmt: skip
"""Names that may be set for user code; everything of the service's environment is missing from it."""


@pytest.fixture(scope="module", params=VANTAGES)
async def seen(request: pytest.FixtureRequest, subject: Subject, sibling: Handle) -> dict[str, Any]:
    """Everything that a program can see from one vantage, while a sibling runs something that can be recognised."""
    async with subject.agent(sibling) as busy:
        await run(busy, "import subprocess; sleeper = subprocess.Popen(['sleep', '600'])")
        async with subject.linked_sandbox() as agent:
            found: dict[str, Any] = await report(agent, "look", kind=request.param)
        await run(busy, "sleeper.kill(); sleeper.wait()")
    return found


async def test_a_program_that_reads_everything_sees_nothing_of_the_host(
    seen: dict[str, Any], host: Host, data_dir: str
) -> None:
    assert seen["search"]["secrets"] == []
    assert {os.path.basename(path) for path in seen["search"]["devices"]} <= DEVICES
    assert set(seen["dev"]) <= DEVICES | {"fd", "pts", "shm", "stderr", "stdin", "stdout"}
    assert not {"sys", "boot", "mnt"} & set(seen["root"])
    assert seen["run"] == {}
    assert [name for name in seen["tmp"] if not name.startswith("script_")] == []
    assert seen["shm"] == []
    assert seen["interfaces"] == ["lo"]
    assert seen["uid"] == 1000
    assert not set(seen["environment"]) - ENVIRONMENT
    assert host.secret not in json.dumps(seen)
    assert host.folder not in json.dumps(seen)
    assert data_dir not in json.dumps(seen["environment"])


async def test_only_the_sandbox_s_own_processes_are_in_sight(seen: dict[str, Any], host: Host) -> None:
    processes = seen["processes"]

    assert 2 <= len(processes) <= 8
    assert "sleep" not in json.dumps(processes)
    assert str(host.process.pid) not in processes
    assert str(os.getpid()) not in processes


async def test_no_descriptor_leads_out(seen: dict[str, Any]) -> None:
    descriptors = dict(seen["descriptors"])
    # libffi's own library, where it maps the code of callbacks from that: as the sandbox sees it, and for reading.
    library = [fd for fd, target in descriptors.items() if os.path.basename(target).startswith("libffi.so.")]
    assert [seen["opened"][fd] for fd in library] == [{"is_own": True, "mode": os.O_RDONLY}] * len(library)
    assert len(library) <= 1
    for fd in library:
        del descriptors[fd]
    for target in descriptors.values():
        # The claim is memory, in which a script leaves the exception that ended it for its agent.
        inside = ("pipe:", "socket:", "/dev/null", "/proc/", "/workspace", "/memfd:claim")
        assert target.startswith(inside), descriptors
    # Standard streams, the control socket, and the listing itself.
    assert len(descriptors) <= 6


async def test_the_host_s_files_are_not_there(subject: Subject, host: Host, data_dir: str) -> None:
    absent = [
        host.folder, host.file, host.shm_file, data_dir, "/etc/shadow", "/etc/gshadow", "/etc/sudoers",
        "/var/log", "/var/lib/dpkg", "/var/cache", "/var/tmp", "/var/spool",
        "/boot", "/sys", "/mnt", "/srv", "/run/systemd", "/var/run/docker.sock", "/run/docker.sock",
        sys.prefix, PROGRAMS, *_home(),
    ]  # fmt: skip
    async with subject.linked_sandbox() as agent:
        done = await report(agent, "touch", absent, ["read", "write", "truncate", "unlink"])
        var = await printed(
            agent, "import os; print([os.listdir(p) for p in ('/var', '/var/lib') if os.path.isdir(p)])"
        )

    assert not any(done.values()), done
    # What packages of TeX put there, and nothing else of /var.
    assert var in {"[]", "[['lib'], ['texmf']]"}


def _home() -> list[str]:
    """List what the user who runs the service has at home; the interpreter may lie there, and nothing else is shown."""
    home = os.path.expanduser("~")
    return [path for name in os.listdir(home) if not sys.base_prefix.startswith(path := os.path.join(home, name))]


async def test_what_is_shown_of_the_host_cannot_be_changed(subject: Subject) -> None:
    paths = [
        "/", "/usr", "/usr/bin/env", "/usr/bin/python3", "/etc", "/etc/passwd", "/etc/hosts", "/etc/resolv.conf",
        "/etc/ssl/certs", "/opt/image", "/opt/image/bin/python", "/opt/warren", "/opt/warren/warren/guest/agent.py",
        "/dev", "/home", "/home/sandbox", "/proc",
    ]  # fmt: skip
    async with subject.linked_sandbox() as agent:
        done = await report(agent, "touch", paths, [*CHANGES, "create below", "link"])
        there = await printed(agent, "import os; print(os.path.isfile('/opt/warren/warren/guest/agent.py'))")

    # /home/sandbox is the workspace under another name, and that is the sandbox's own.
    assert set(done.pop("/home/sandbox")) <= {"chmod", "chown", "times", "create below"}
    assert not any(done.values()), done
    assert there == "True"


async def test_proc_tells_nothing_of_the_machine_and_changes_nothing(subject: Subject) -> None:
    leaks = [
        "/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/key-users", "/proc/kmsg", "/proc/modules",
        "/proc/sched_debug", "/proc/timer_list", "/proc/vmallocinfo", "/proc/interrupts", "/proc/latency_stats",
        "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/config.gz", "/proc/mtrr",
        "/proc/slabinfo", "/proc/iomem", "/proc/ioports", "/proc/diskstats", "/proc/partitions", "/proc/cgroups",
        "/proc/cmdline",
    ]  # fmt: skip
    code = (
        "import json, re\n"
        "def size(path):\n"
        "    try: lines = open(path, 'rb').readlines(65536)\n"
        "    except OSError: return 0\n"
        # Maps of physical memory are visible to all, with every address zeroed.
        "    return sum(not re.match(rb' *0+-0+ : ', line) for line in lines)\n"
        f"print(json.dumps({{path: size(path) for path in {leaks!r}}}))"
    )
    async with subject.linked_sandbox() as agent:
        sizes = json.loads(await printed(agent, code))

    assert not any(sizes.values()), sizes


async def test_proc_shows_no_disk_no_load_and_no_name_of_the_host_and_what_programs_need(subject: Subject) -> None:
    """Each workspace is a disk of the host, so their list is the list of tenants."""
    needed = [
        *("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "vmstat", "self/mountinfo"),
        *("sys/kernel/osrelease", "sys/kernel/hostname", "sys/kernel/pid_max", "sys/vm/overcommit_memory"),
        *("sys/net/core/somaxconn", "sys/fs/file-max"),
    ]
    code = (
        "import json, os\n"
        "def read(path):\n"
        "    with open('/proc/' + path) as file: return file.read().strip()\n"
        "there = [name for name in ('fs', 'pressure') if os.path.exists('/proc/' + name)]\n"
        "folders = {name: os.listdir('/proc/' + name) for name in there}\n"
        f"missing = [path for path in {needed!r} if not read(path)]\n"
        "print(json.dumps([folders, missing, read('sys/kernel/random/boot_id')]))"
    )
    async with subject.linked_sandbox() as agent:
        folders, missing, boot_id = json.loads(await printed(agent, code))

    assert not any(folders.values())
    assert missing == []
    assert str(uuid.UUID(boot_id)) == boot_id
    assert boot_id != (await anyio.Path("/proc/sys/kernel/random/boot_id").read_text()).strip()


async def test_kernel_settings_cannot_be_written(subject: Subject) -> None:
    settings = [
        "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname", "/proc/sys/vm/drop_caches",
        "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces",
        "/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/msgmax", "/proc/irq/default_smp_affinity",
        "/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups", "/proc/self/projid_map",
        "/proc/1/oom_score_adj", "/proc/1/clear_refs", "/proc/1/coredump_filter", "/proc/1/timerslack_ns",
        "/proc/self/attr/current", "/proc/mtrr", "/proc/scsi/scsi", "/proc/bus/pci/devices",
    ]  # fmt: skip
    code = (
        "import json\n"
        "def attempt(path):\n"
        "    try:\n"
        "        with open(path, 'r+') as file: was = file.read()\n"
        "    except (OSError, ValueError): was = '1'\n"
        "    try:\n"
        "        with open(path, 'wb', 0) as file: file.write(was.encode() or b'1')\n"
        "    except OSError: return False\n"
        "    return True\n"
        f"print(json.dumps([path for path in {settings!r} if attempt(path)]))"
    )
    async with subject.linked_sandbox() as agent:
        written = json.loads(await printed(agent, code))

    # Masked files are the null device: writes to them have no effect.
    allowed = {"/proc/sysrq-trigger", "/proc/mtrr"}
    # An ordinary user has one id for everything, so a program can ask for its own agent to be the first to die.
    allowed |= {f"/proc/1/{name}" for name in ("oom_score_adj", "clear_refs", "coredump_filter")} if ROOTLESS else set()
    assert set(written) <= allowed


@pytest.mark.parametrize("kind", VANTAGES)
async def test_the_agent_cannot_be_looked_into(subject: Subject, kind: ExecKind) -> None:
    paths = [f"/proc/1/{name}" for name in ("environ", "mem", "maps", "fd/0", "fd/3", "root", "cwd", "exe", "auxv")]
    async with subject.linked_sandbox() as agent:
        done = await report(agent, "touch", paths, ["read", "write", "create below", "replace"], kind=kind)

    assert not any(done.values()), done


async def test_signals_reach_no_process_outside(subject: Subject, host: Host, sibling: Handle) -> None:
    del sibling
    pids = [host.process.pid, os.getpid(), os.getppid()]
    code = (
        "import json, os, signal\n"
        "def attempt(pid):\n"
        "    try: os.kill(pid, signal.SIGKILL)\n"
        "    except (ProcessLookupError, PermissionError): return False\n"
        "    return True\n"
        f"own = set(os.listdir('/proc'))\n"
        f"print(json.dumps([pid for pid in {pids!r} if str(pid) not in own and attempt(pid)]))"
    )
    async with subject.linked_sandbox() as agent:
        assert json.loads(await printed(agent, code)) == []


async def test_two_sandboxes_share_no_files(subject: Subject, sibling: Handle) -> None:
    del sibling
    mark = "left by the first"
    async with subject.linked_sandbox() as first, subject.linked_sandbox() as second:
        places = ["/tmp/x", "/dev/shm/x", "/workspace/x"]
        await run(first, f"for place in {places!r}: open(place, 'w').write({mark!r})")
        code = f"import os; print([place for place in {places!r} if os.path.exists(place)])"
        assert await printed(second, code) == "[]"
        assert await printed(first, code) == str(places)


async def test_the_host_s_sockets_are_out_of_reach(subject: Subject, host: Host) -> None:
    places = [(listener.family, listener.address, listener.port) for listener in host.listeners]
    async with subject.linked_sandbox() as agent:
        reached = await report(agent, "reach", places)

    assert reached == []


async def test_nothing_on_any_network_answers(subject: Subject, host: Host) -> None:
    del host
    places = [
        ("inet", "169.254.169.254", 80), ("inet", "169.254.170.2", 80), ("inet", "100.100.100.200", 80),
        ("inet", "10.0.0.1", 443), ("inet", "172.17.0.1", 2375), ("inet", "192.168.0.1", 80), ("inet", "1.1.1.1", 443),
        ("inet6", "fd00:ec2::254", 80), ("inet6", "2606:4700:4700::1111", 443),
        ("udp", "1.1.1.1", 53), ("udp", "169.254.169.254", 53), ("udp", "255.255.255.255", 67), ("udp", "224.0.0.1", 9),
        ("name", "metadata.google.internal", 80), ("name", "example.com", 80),
    ]  # fmt: skip
    async with subject.linked_sandbox() as agent:
        assert await report(agent, "reach", places) == []


async def test_loopback_belongs_to_one_sandbox(subject: Subject) -> None:
    server = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1])"
    async with subject.linked_sandbox() as first, subject.linked_sandbox() as second:
        port = int(await printed(first, server))
        places = [("inet", "127.0.0.1", port)]
        assert await report(second, "reach", places) == []
        assert await report(first, "reach", places) == [list(places[0])]


async def test_shared_memory_and_queues_are_the_sandbox_s_own(subject: Subject, host: Host) -> None:
    code = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
        f"print(libc.shmget({host.shm_key}, 0, 0), len(open('/proc/sysvipc/shm').readlines()) - 1)"
    )
    async with subject.linked_sandbox() as agent:
        assert await printed(agent, code) == "-1 0"


@pytest.mark.skipif(ROOTLESS, reason="an ordinary user has one host id for all sandboxes, and the record says so")
async def test_each_sandbox_has_a_host_id_of_its_own(subject: Subject) -> None:
    async with subject.linked_sandbox() as first, subject.linked_sandbox() as second:
        maps = {await printed(agent, "print(open('/proc/self/uid_map').read())") for agent in (first, second)}

    assert len(maps) == 2
    for line in maps:
        inside, _outside, count = line.split()
        assert (inside, count) == ("1000", "1")
