"""A module that an image preloads: it runs in the zygote, before any sandbox."""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import glob
import json
import os
import socket
import struct
import threading
from typing import Any

TARGETS: dict[str, Any] = json.loads(os.environ["HOSTILE"])
FOUND: dict[str, Any] = {}
_libc = ctypes.CDLL(None, use_errno=True)
_MS_REMOUNT_BIND = 0x20 | 0x1000
REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)
SOCKETS = [
    ("netfilter", 16, socket.SOCK_RAW, 12),
    ("route", 16, socket.SOCK_RAW, 0),
    ("packet", 17, socket.SOCK_RAW, 0),
    ("vsock", 40, socket.SOCK_STREAM, 0),
    ("crypto", 38, socket.SOCK_SEQPACKET, 0),
    ("sctp", socket.AF_INET, socket.SOCK_STREAM, 132),
]
CALLS = {
    "ptrace": 101,
    "unshare": 272,
    "setns": 308,
    "bpf": 321,
    "perf_event_open": 298,
    "userfaultfd": 323,
    "io_uring_setup": 425,
    "keyctl": 250,
    "fsopen": 430,
    "process_vm_readv": 310,
    "pidfd_getfd": 438,
    "kcmp": 312,
    "init_module": 175,
    "pivot_root": 155,
    "chroot": 161,
    "open_by_handle_at": 304,
}


def attempt(name: str, action: Any) -> None:
    """Note what could be done."""
    try:
        FOUND[name] = repr(action())
    except OSError:
        return


def read(path: str) -> bytes:
    """Read the beginning of a file."""
    with open(path, "rb") as file:
        return file.read(64)


def call(function: Any, *arguments: Any) -> None:
    """Call into the C library, with an exception when it fails."""
    if function(*arguments) != 0:
        raise OSError(ctypes.get_errno())


def make_socket(family: int, kind: int, protocol: int) -> str:
    """Make a socket, and name it: its kernel code would be reachable."""
    with socket.socket(family, kind, protocol) as made:
        return repr(made.family)


def make_call(number: int, *arguments: int) -> None:
    """Make a system call by its number on x86_64; ENOSYS and EINVAL of the kernel itself would be reaching it."""
    ctypes.set_errno(0)
    if _libc.syscall(number, *arguments) < 0 and ctypes.get_errno() in REFUSALS:
        raise OSError(ctypes.get_errno())


def call_kernel() -> None:
    """Try what a zygote never needs: netlink and packets, tracing, rings, programs in the kernel, namespaces."""
    for name, family, kind, protocol in SOCKETS:
        attempt(f"socket {name}", lambda given=(family, kind, protocol): make_socket(*given))
    if os.uname().machine == "x86_64":
        for name, number in CALLS.items():
            attempt(f"call {name}", lambda number=number: make_call(number, 1, 0, 0, 0, 0))
    for uid in (1 << 16, 1 << 20, 4294967294):
        attempt(f"become {uid}", lambda uid=uid: os.setresuid(-1, uid, -1))
    for path in glob.glob("/proc/self/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(path).startswith(("/sys/", "/proc/", "/dev/loop")):
                FOUND[f"descriptor {os.readlink(path)}"] = "open"
    with open("/proc/self/status", encoding="ascii") as file:
        FOUND["capabilities"] = next(line.split()[1] for line in file if line.startswith("CapEff"))
    FOUND["processes"] = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def explore() -> None:
    """Try to reach the host, its processes and other images with the zygote's rights."""
    call_kernel()
    for path in TARGETS["files"]:
        attempt(f"read {path}", lambda path=path: read(path))
    for path in ("/usr/made", "/opt/warren/made", "/opt/image/made", "/etc/made", "/made"):
        attempt(f"write {path}", lambda path=path: open(path, "w").close())
        folder = os.path.dirname(path).encode()
        attempt(f"remount {path}", lambda folder=folder: call(_libc.mount, None, folder, None, _MS_REMOUNT_BIND, None))
        attempt(f"write again {path}", lambda path=path: open(path, "w").close())
    for folder in (b"/usr", b"/opt/warren", b"/proc", b"/"):
        attempt(f"umount {folder!r}", lambda folder=folder: call(_libc.umount2, folder, 2))
    attempt("block device", lambda: os.mknod("/tmp/disk", 0o060666, os.makedev(254, 0)))
    for pid in TARGETS["pids"]:
        attempt(f"kill {pid}", lambda pid=pid: os.kill(pid, 0))
        for name in ("mem", "environ", "maps", "root/etc/passwd", "cwd", "fd/0"):
            attempt(f"look {pid} {name}", lambda pid=pid, name=name: read(f"/proc/{pid}/{name}"))
        attempt(f"trace {pid}", lambda pid=pid: call(_libc.ptrace, 16, pid, 0, 0))
    for address in TARGETS["sockets"]:
        where = tuple(address) if isinstance(address, list) else address
        family = socket.AF_INET if isinstance(where, tuple) else socket.AF_UNIX
        attempt(f"connect {where}", lambda where=where, family=family: socket.socket(family).connect(where))
    FOUND["map"] = read("/proc/self/uid_map").decode().split()


def accept() -> socket.socket:
    """Pose as the zygote: take the keeper's connection from the listening socket."""
    return socket.socket(fileno=os.dup(3)).accept()[0]


def frame(header: bytes) -> bytes:
    """Build a frame."""
    return struct.pack(">II", len(header), 0) + header


def say(data: bytes) -> None:
    """Say something to the keeper, and then nothing more."""
    keeper = accept()
    keeper.sendall(data)
    threading.Event().wait()


def ready() -> socket.socket:
    """Pose as a zygote that is ready."""
    keeper = accept()
    keeper.sendall(frame(b'{"t": "ready", "version": "%s", "error": null}' % TARGETS["version"].encode()))
    return keeper


def requests(keeper: socket.socket) -> Any:
    """Yield the name of each sandbox that the keeper requests, with the descriptors that came."""
    while True:
        data, fds, _, _ = socket.recv_fds(keeper, 65536, 64)
        if not data:
            return
        yield data.partition(b'"sandbox":"')[2].partition(b'"')[0], fds


def deliver(keeper: socket.socket, name: bytes, pid: int) -> None:
    """Name a process as that of a sandbox."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [os.pidfd_open(pid)]))]
    keeper.sendmsg([frame(b'{"t": "spawned", "sandbox": "%s", "pid": %d}' % (name, pid))], rights)


def betray() -> None:
    """Answer the keeper's requests with processes of the host, and with our own process 1."""
    keeper = ready()
    for name, _ in requests(keeper):
        for pid in (*TARGETS["pids"], 1, os.getppid(), os.getpid()):
            with contextlib.suppress(OSError):
                deliver(keeper, name, pid)


def conscript() -> None:
    """Write processes of the host to every descriptor that the keeper hands out: one may be a control group."""
    for _, fds in requests(ready()):
        for fd in fds:
            for pid in TARGETS["pids"]:
                with contextlib.suppress(OSError):
                    os.write(fd, str(pid).encode())


def pause_in_child() -> int:
    """Fork a child that does nothing; returns its pid."""
    pid = os.fork()
    if pid == 0:
        threading.Event().wait()
    return pid


def deliver_stale() -> None:
    """Deliver a child that was forked in the control group of an earlier sandbox."""
    stale = 0
    keeper = ready()
    for name, _ in requests(keeper):
        if stale:
            deliver(keeper, name, stale)
        else:
            stale = pause_in_child()
            keeper.sendall(frame(b'{"t": "failed", "sandbox": "%s", "error": "not now"}' % name))


def answer_unasked() -> None:
    """Deliver a process for a sandbox that was not requested."""
    keeper = ready()
    for _ in requests(keeper):
        deliver(keeper, b"sbx_other", pause_in_child())


def leave_daemon() -> None:
    """Leave a process behind that is no child of the zygote any more."""
    if os.fork() == 0:
        if os.fork() == 0:
            _libc.prctl(15, b"strayling", 0, 0, 0)
            threading.Event().wait()
        os._exit(0)
    os.wait()


def flood() -> None:
    """Send descriptors without end."""
    keeper = accept()
    null = os.open("/dev/null", os.O_RDONLY)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 8))]
    while True:
        keeper.sendmsg([b"\0"], rights)


MODES: dict[str, Any] = {
    "explore": explore,
    "raise": lambda: 1 / 0,
    "exit": lambda: os._exit(0),
    "thread": lambda: threading.Thread(target=threading.Event().wait, daemon=True).start(),
    "garbage": lambda: say(os.urandom(4096)),
    "a huge frame": lambda: say(b"\xff" * 64),
    "no frame": lambda: say(frame(b"[]")),
    "betray": betray,
    "conscript": conscript,
    "stale": deliver_stale,
    "unasked": answer_unasked,
    "silent": lambda: [None for _ in requests(ready())],
    "daemon": leave_daemon,
    "flood": flood,
}
MODES[TARGETS["mode"]]()
