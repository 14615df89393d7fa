"""The system-call filter: every number on both architectures by an interpreter, then for real in forked children."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from unit.local import bpf
from unit.local.forked import ChildDied, enter_namespaces, errno_of, run_in_child
from warren.engines.local.linux import namespaces, seccomp, syscall_table, syscalls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
EPERM = bpf.ERRNO | errno.EPERM
ENOSYS = bpf.ERRNO | errno.ENOSYS
SCHEDULING = {"sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity"}
PRIORITIES = {"setpriority": os.PRIO_PROCESS, "ioprio_set": 1}
"""Calls on a process, a group or a user, and the number that names a process."""
WITH_RULES = {"clone", "socket", "socketpair", "ioctl", "prlimit64", "mknod", "mknodat", "personality"}
WITH_RULES |= SCHEDULING | set(PRIORITIES)
WITH_RULES |= {"setsockopt", "sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg"}
FLAGS_AT = {"sendto": 3, "recvfrom": 3, "sendmmsg": 3, "recvmmsg": 3, "sendmsg": 2, "recvmsg": 2}
CLONE3 = 435

pytestmark = pytest.mark.skipif(syscalls.MACHINE not in ARCHES, reason="no filter for this machine")
each_arch = pytest.mark.parametrize("arch", sorted(ARCHES))


def _ask(arch: str, name: str, *arguments: int, zygote: bool = False) -> int:
    program = seccomp.build_filter(arch, zygote=zygote)
    return bpf.run(program, syscall_table.allowed(arch)[name], ARCHES[arch], arguments)


@each_arch
def test_every_number_gets_the_answer_of_its_table(arch: str) -> None:
    program = seccomp.build_filter(arch)
    allowed, denied = syscall_table.allowed(arch), syscall_table.denied(arch)
    expected = dict.fromkeys(range(2000), ENOSYS)
    expected |= dict.fromkeys(denied.values(), EPERM)
    expected |= {number: bpf.ALLOW for name, number in allowed.items() if name not in WITH_RULES}
    for name in WITH_RULES & set(allowed):
        del expected[allowed[name]]

    assert {number: bpf.run(program, number, ARCHES[arch]) for number in expected} == expected


@each_arch
def test_the_two_tables_have_no_number_and_no_name_in_common(arch: str) -> None:
    allowed, denied = syscall_table.allowed(arch), syscall_table.denied(arch)

    assert not set(allowed) & set(denied)
    assert len({*allowed.values(), *denied.values()}) == len(allowed) + len(denied)


@each_arch
@pytest.mark.parametrize("number", [0x40000000, 0x40000001, 0x400001FF, 0x7FFFFFFF, 0xFFFFFFFF, CLONE3])
def test_x32_huge_numbers_and_clone3_do_not_exist(arch: str, number: int) -> None:
    assert bpf.run(seccomp.build_filter(arch), number, ARCHES[arch]) == ENOSYS


@each_arch
@pytest.mark.parametrize("foreign", [0x40000003, 0x40000028, 0, 0xFFFFFFFF])
def test_a_call_of_another_architecture_kills_the_process(arch: str, foreign: int) -> None:
    program = seccomp.build_filter(arch)

    assert {bpf.run(program, number, foreign) for number in range(600)} == {bpf.KILL}


@each_arch
def test_a_filter_is_small_and_no_call_costs_many_comparisons(arch: str) -> None:
    program = seccomp.build_filter(arch)
    plain = [number for name, number in syscall_table.allowed(arch).items() if name not in WITH_RULES]

    assert len(program) // 8 < 400
    assert max(bpf.steps(program, number, ARCHES[arch]) for number in plain) <= 16


@each_arch
def test_clone_makes_threads_and_processes_but_no_namespaces(arch: str) -> None:
    for flag in namespaces.EACH:
        assert _ask(arch, "clone", flag | signal.SIGCHLD) == EPERM
    threads = 0x3D0F00
    assert _ask(arch, "clone", threads) == bpf.ALLOW
    assert _ask(arch, "clone", signal.SIGCHLD) == bpf.ALLOW
    assert _ask(arch, "clone", 0x8000 | signal.SIGCHLD) == bpf.ALLOW
    assert _ask(arch, "clone", (7 << 32) | namespaces.CLONE_NEWUSER) == EPERM


@each_arch
@pytest.mark.parametrize("name", ["socket", "socketpair"])
def test_sockets_are_of_three_families_and_plain_protocols(arch: str, name: str) -> None:
    families = {family: _ask(arch, name, family, 1, 0) for family in range(64)}
    allowed = {family for family, answer in families.items() if answer == bpf.ALLOW}
    refused = {answer for family, answer in families.items() if family not in allowed}

    assert allowed == {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6}
    assert refused == {bpf.ERRNO | errno.EAFNOSUPPORT}
    assert _ask(arch, name, 2, 1, 6) == bpf.ALLOW
    assert _ask(arch, name, 10, 2, 17) == bpf.ALLOW
    for protocol in (132, 33, 136, 256, 262):
        assert _ask(arch, name, 2, 1, protocol) == bpf.ERRNO | errno.EPROTONOSUPPORT
    # The kernel takes an int, so a set upper half must not make another family pass.
    assert _ask(arch, name, (1 << 32) | 16, 1, 0) == bpf.ERRNO | errno.EAFNOSUPPORT


@each_arch
@pytest.mark.parametrize("zygote", [False, True])
@pytest.mark.parametrize("name", ["socket", "socketpair"])
def test_sockets_are_streams_and_datagrams_and_those_of_this_machine_packets_in_order(
    arch: str, name: str, zygote: bool
) -> None:
    """A type that is not known reaches the code that looks protocols up, and may load a module."""
    flags = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    unix, *inet = (
        {kind: _ask(arch, name, family, kind | flags, 0, zygote=zygote) for kind in range(16)}
        for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
    )

    assert {kind for kind, answer in unix.items() if answer == bpf.ALLOW} == {1, 2, 5}
    for answers in inet:
        assert {kind for kind, answer in answers.items() if answer == bpf.ALLOW} == {1, 2}
        assert answers[socket.SOCK_RAW] == EPERM
        assert answers[socket.SOCK_SEQPACKET] == answers[6] == bpf.ERRNO | errno.ESOCKTNOSUPPORT
    assert _ask(arch, name, 2, 0x10001, 0, zygote=zygote) != bpf.ALLOW


@each_arch
@pytest.mark.parametrize("zygote", [False, True])
def test_protocols_of_the_kernel_cannot_be_put_on_a_socket(arch: str, zygote: bool) -> None:
    refused = {(6, 31), (17, 100)}
    asked = {(level, name) for level in (0, 1, 6, 17, 41, 282) for name in range(128)}
    answers = {option: _ask(arch, "setsockopt", 3, *option, zygote=zygote) for option in asked}

    assert {option for option, answer in answers.items() if answer != bpf.ALLOW} == refused
    assert {answers[option] for option in refused} == {bpf.ERRNO | errno.ENOPROTOOPT}
    assert _ask(arch, "setsockopt", 3, (1 << 32) | 6, (1 << 32) | 31) == bpf.ERRNO | errno.ENOPROTOOPT


@each_arch
@pytest.mark.parametrize("zygote", [False, True])
@pytest.mark.parametrize("name", sorted(FLAGS_AT))
def test_no_byte_is_sent_or_received_out_of_band(arch: str, name: str, zygote: bool) -> None:
    before = (3,) * FLAGS_AT[name]

    for flags in (0, socket.MSG_DONTWAIT, socket.MSG_PEEK | socket.MSG_WAITALL, socket.MSG_NOSIGNAL | 0xFFFF0000):
        assert _ask(arch, name, *before, flags, zygote=zygote) == bpf.ALLOW
        out_of_band = _ask(arch, name, *before, flags | socket.MSG_OOB, zygote=zygote)
        assert out_of_band == bpf.ERRNO | errno.EOPNOTSUPP


@each_arch
def test_requests_that_type_into_a_terminal_are_refused_whatever_the_upper_half(arch: str) -> None:
    for request in (0x5412, 0x541C, 0x5423):
        assert _ask(arch, "ioctl", 0, request) == EPERM
        assert _ask(arch, "ioctl", 0, (0xFF << 32) | request) == EPERM
    for request in (0x5401, 0x5413, 0x5414, 0x541B, 0x5421):
        assert _ask(arch, "ioctl", 0, request) == bpf.ALLOW


@each_arch
def test_limits_are_of_the_own_process_only(arch: str) -> None:
    assert _ask(arch, "prlimit64", 0) == bpf.ALLOW
    assert _ask(arch, "prlimit64", 1) == EPERM
    assert _ask(arch, "prlimit64", 0xFFFFFFFF) == EPERM


@each_arch
@pytest.mark.parametrize("name", sorted(SCHEDULING))
def test_every_process_but_the_agent_can_be_scheduled(arch: str, name: str) -> None:
    for pid in (0, 2, 1000, (1 << 32) | 2):
        assert _ask(arch, name, pid) == bpf.ALLOW
    for pid in (1, (1 << 32) | 1):
        assert _ask(arch, name, pid) == EPERM


@each_arch
@pytest.mark.parametrize("name", sorted(PRIORITIES))
def test_priorities_are_of_one_process_that_is_not_the_agent(arch: str, name: str) -> None:
    kind = PRIORITIES[name]
    for pid in (0, 2, 1000):
        assert _ask(arch, name, kind, pid) == bpf.ALLOW
    for pid in (1, (1 << 32) | 1):
        assert _ask(arch, name, kind, pid) == EPERM
    for other in {0, 1, 2, 3, 4} - {kind}:
        assert _ask(arch, name, other, 0) == EPERM
    assert _ask(arch, name, (1 << 32) | kind, 1) == EPERM


@each_arch
def test_no_device_can_be_made(arch: str) -> None:
    names = {"mknodat": 2, "mknod": 1}
    for name in set(names) & set(syscall_table.allowed(arch)):
        for kind in (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK):
            assert _ask(arch, name, *(0,) * names[name], kind | 0o644) == bpf.ALLOW
        for kind in (stat.S_IFCHR, stat.S_IFBLK, stat.S_IFDIR):
            assert _ask(arch, name, *(0,) * names[name], kind | 0o644) == EPERM
            assert _ask(arch, name, *(0,) * names[name], (1 << 16) | kind) == EPERM


@each_arch
def test_the_personality_can_be_asked_and_not_changed(arch: str) -> None:
    assert _ask(arch, "personality", 0xFFFFFFFF) == bpf.ALLOW
    assert _ask(arch, "personality", 0) == bpf.ALLOW
    assert _ask(arch, "personality", 0x0040000) == EPERM


def test_an_unknown_machine_is_refused_with_a_sentence() -> None:
    with pytest.raises(RuntimeError, match="needs x86_64 or aarch64"):
        seccomp.build_filter("riscv64")


def _load_header(path: str) -> dict[str, int]:
    if not os.path.exists(path):
        pytest.skip(f"{path} is not installed")
    with open(path, encoding="utf-8") as file:
        return {name: int(number) for name, number in re.findall(r"#define __NR_?(?:3264_)?(\w+)\s+(\d+)", file.read())}


@pytest.mark.parametrize(
    ("arch", "path"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", "/usr/include/aarch64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_the_numbers_are_those_of_the_kernels_headers(arch: str, path: str) -> None:
    real = _load_header(path)
    real.setdefault("newfstatat", real.get("fstatat", -1))
    # Not a call: how many there are.
    real.pop("syscalls", None)
    ours = {**syscall_table.allowed(arch), **syscall_table.denied(arch)}
    newest = max(real.values())

    assert {name: real.get(name) for name, number in ours.items() if number <= newest} == {
        name: number for name, number in ours.items() if number <= newest
    }


REFUSED = """
    mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr
    unshare setns bpf perf_event_open keyctl add_key request_key userfaultfd io_uring_setup io_uring_enter
    io_uring_register open_by_handle_at name_to_handle_at ptrace process_vm_readv process_vm_writev
    process_madvise pidfd_getfd kcmp kexec_load init_module finit_module delete_module reboot swapon
    swapoff settimeofday clock_settime adjtimex clock_adjtime syslog acct quotactl fanotify_init
    memfd_secret lookup_dcookie vmsplice move_pages migrate_pages sethostname setdomainname vhangup
    nfsservctl
"""


def test_forbidden_calls_are_refused_for_real() -> None:
    numbers = syscall_table.denied(syscalls.MACHINE)

    def attempt() -> dict[str, int]:
        seccomp.install(seccomp.build_filter())
        return {name: errno_of(syscalls.syscall, numbers[name], name, 0, 0, 0, 0, 0) for name in REFUSED.split()}

    assert run_in_child(attempt) == dict.fromkeys(REFUSED.split(), errno.EPERM)


def _really(function: Callable[[], Any]) -> Any:
    def attempt() -> Any:
        seccomp.install(seccomp.build_filter())
        return function()

    return run_in_child(attempt)


def test_clone3_answers_that_it_does_not_exist_and_threads_and_processes_still_start() -> None:
    def attempt() -> list[object]:
        seen: list[object] = [errno_of(syscalls.syscall, CLONE3, "clone3", 0, 0)]
        thread = threading.Thread(target=seen.append, args=("thread",))
        thread.start()
        thread.join()
        return [*seen, subprocess.run(["/bin/sh", "-c", "exit 3"], check=False).returncode]

    assert _really(attempt) == [errno.ENOSYS, "thread", 3]


@pytest.mark.parametrize("family", [16, 17, 38, 40, 15, 33, 29, 21, 44])
def test_sockets_of_other_families_cannot_be_made(family: int) -> None:
    assert _really(lambda: errno_of(socket.socket, family, socket.SOCK_DGRAM)) == errno.EAFNOSUPPORT


def test_odd_types_options_and_urgent_bytes_are_refused_for_real() -> None:
    def attempt() -> list[int]:
        one, two = socket.socketpair()
        tcp, udp = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
        with one, two, tcp, udp:
            return [
                errno_of(socket.socket, socket.AF_INET, socket.SOCK_SEQPACKET),
                errno_of(socket.socket, socket.AF_INET6, 6),
                errno_of(tcp.setsockopt, socket.IPPROTO_TCP, 31, b"tls"),
                errno_of(udp.setsockopt, socket.IPPROTO_UDP, 100, 2),
                errno_of(one.send, b"!", socket.MSG_OOB),
                errno_of(two.recv, 1, socket.MSG_OOB | socket.MSG_DONTWAIT),
                errno_of(one.sendmsg, [b"!"], [], socket.MSG_OOB),
                errno_of(one.send, b"!"),
                errno_of(two.recv, 1),
            ]

    refused = [errno.ESOCKTNOSUPPORT] * 2 + [errno.ENOPROTOOPT] * 2 + [errno.EOPNOTSUPP] * 3
    assert _really(attempt) == [*refused, 0, 0]


def test_ordinary_sockets_work() -> None:
    def attempt() -> bytes | str:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
            answered, _ = server.accept()
            with answered:
                client.sendall(b"hello")
                received = answered.recv(5).decode()
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            for end in socket.socketpair(socket.AF_UNIX, kind):
                end.close()
        return received

    assert _really(attempt) == "hello"


def test_no_new_privileges_and_the_filter_are_in_force() -> None:
    def attempt() -> list[str]:
        with open("/proc/self/status", encoding="utf-8") as file:
            lines = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        return [lines["NoNewPrivs"], lines["Seccomp"]]

    assert _really(attempt) == ["1", "2"]


def test_typing_into_a_terminal_is_refused() -> None:
    def attempt() -> list[int]:
        _, slave = os.openpty()
        return [errno_of(fcntl.ioctl, slave, 0x5412, b"x"), errno_of(os.get_terminal_size, slave)]

    assert _really(attempt) == [errno.EPERM, 0]


def test_devices_cannot_be_made_and_fifos_can(tmp_path: Path) -> None:
    def attempt() -> list[int]:
        return [
            errno_of(os.mknod, tmp_path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3)),
            errno_of(os.mkfifo, tmp_path / "fifo"),
        ]

    assert _really(attempt) == [errno.EPERM, 0]


def test_limits_of_another_process_cannot_be_read_or_set() -> None:
    def attempt() -> list[object]:
        try:
            resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)
        except PermissionError:
            return [resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0]
        return []

    assert _really(attempt) == [True]


def test_a_nested_user_namespace_cannot_be_made_by_clone() -> None:
    number = syscall_table.allowed(syscalls.MACHINE)["clone"]

    def attempt() -> int:
        return errno_of(syscalls.syscall, number, "clone", namespaces.CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)

    assert _really(attempt) == errno.EPERM


@pytest.mark.skipif(syscalls.MACHINE != "x86_64", reason="the 32-bit door is x86's")
def test_the_32_bit_door_kills_the_process() -> None:
    # mov eax, 20 (getpid there); int 0x80; ret
    code = bytes.fromhex("b814000000cd80c3")

    def attempt() -> int:
        import mmap

        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        seccomp.install(seccomp.build_filter())
        return int(call())

    with pytest.raises(ChildDied) as died:
        run_in_child(attempt)
    assert os.WTERMSIG(died.value.status) == signal.SIGSYS


def test_ordinary_programs_run_under_the_filter(tmp_path: Path) -> None:
    script = f"""
set -e
cd {tmp_path}
printf 'b\\na\\n' | sort > sorted
cp sorted copy && mv copy moved && ln -s moved link && tar cf x.tar moved link && rm moved && tar xf x.tar
find . -type f | wc -l
{sys.executable} -c 'import asyncio, multiprocessing, sqlite3, ssl, tempfile, concurrent.futures as c
async def main():
    process = await asyncio.create_subprocess_exec("true"); await process.wait()
asyncio.run(main())
with c.ThreadPoolExecutor() as pool: assert sum(pool.map(int, "123")) == 6
with multiprocessing.Pool(2) as pool: assert pool.map(abs, [-1]) == [1]
sqlite3.connect("x.db").execute("create table t (x)")
print("python")'
"""

    def attempt() -> list[object]:
        enter_namespaces(namespaces.CLONE_NEWUSER)
        seccomp.install(seccomp.build_filter())
        done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=False, text=True)
        return [done.returncode, done.stdout, done.stderr]

    assert run_in_child(attempt) == [0, "3\npython\n", ""]


@pytest.mark.parametrize(
    "program",
    [["git", "init", "-q"], ["node", "-e", "require('fs').readdirSync('.')"], ["gcc", "-x", "c", "-", "-o", "a.out"]],
    ids=lambda argv: str(argv[0]),
)
def test_developers_programs_run_under_the_filter(tmp_path: Path, program: list[str]) -> None:
    def attempt() -> list[object]:
        seccomp.install(seccomp.build_filter())
        source = "int main(void) { return 0; }"
        done = subprocess.run(program, cwd=tmp_path, input=source, capture_output=True, check=False, text=True)
        return [done.returncode, done.stderr]

    if not any(os.access(f"{folder}/{program[0]}", os.X_OK) for folder in os.get_exec_path()):
        pytest.skip(f"{program[0]} is not installed")
    assert run_in_child(attempt) == [0, ""]
