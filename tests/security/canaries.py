"""Things on the host that a sandbox must not see or touch, and the question whether any of them was."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

MARK = "CANARY"
"""With it begins every secret of the host; attack programs look for it in everything they can read."""
_IPC_CREAT = 0o1000
_IPC_RMID = 0
_WATCHED_FILES = ("/etc/passwd", "/etc/shadow", "/etc/hosts", "/etc/resolv.conf", "/bin/su", "/usr/bin/passwd")
_WATCHED_SETTINGS = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/sysrq",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/drop_caches",
)

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Listener:
    """A socket that accepts every client that finds it."""

    family: str
    address: str
    port: int
    sock: socket.socket = field(compare=False)


class Host:
    """Canaries in every place that a process of this host could look: files, environment, sockets, shared memory."""

    def __init__(self) -> None:
        self.secret = MARK + secrets.token_hex(16)
        self._stack = contextlib.ExitStack()
        self.folder = tempfile.mkdtemp(prefix="warren-host-")
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        # Open to all users: only the sandbox's own mounts keep a sandbox from it.
        os.chmod(self.folder, 0o777)
        self.file = self._write(os.path.join(self.folder, "marker"))
        self.shm_file = self._write(f"/dev/shm/warren-{secrets.token_hex(8)}")
        self._stack.callback(os.unlink, self.shm_file)
        self.process = self._start_process()
        self.shm_key, self._shm_id = self._make_shared_memory()
        self.listeners = self._listen()
        self._before = self._fingerprint()
        self._clock = time.time() - time.monotonic()

    def close(self) -> None:
        """Remove all of it."""
        self._stack.close()

    def check_unchanged(self) -> None:
        """Assert that every canary lives, untouched and unvisited, and that the machine is as it was."""
        for path in (self.file, self.shm_file):
            with open(path, encoding="ascii") as file:
                assert file.read() == self.secret, f"{path} was changed"
        assert sorted(os.listdir(self.folder)) == ["listener", "marker"], "the host's folder was changed"
        assert self.process.poll() is None, "the host's process was ended"
        assert self._fingerprint() == self._before, "the host was changed"
        assert abs(time.time() - time.monotonic() - self._clock) < 60, "the host's clock was set"
        for listener in self.listeners:
            assert not _was_visited(listener.sock), f"{listener} was reached from inside"

    def _write(self, path: str) -> str:
        with open(path, "x", encoding="ascii") as file:
            file.write(self.secret)
        os.chmod(path, 0o666)
        return path

    def _start_process(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()", self.secret],
            stdin=subprocess.PIPE,
            env={"SECRET": self.secret},
        )
        self._stack.callback(process.wait, 30)
        assert process.stdin is not None
        self._stack.callback(process.stdin.close)
        return process

    def _make_shared_memory(self) -> tuple[int, int]:
        key = secrets.randbelow(1 << 30) + 1
        segment = _libc.shmget(key, 4096, _IPC_CREAT | 0o666)
        assert segment >= 0, os.strerror(ctypes.get_errno())
        self._stack.callback(_libc.shmctl, segment, _IPC_RMID, None)
        return key, segment

    def _listen(self) -> tuple[Listener, ...]:
        path = os.path.join(self.folder, "listener")
        places: list[tuple[str, int, int, str | tuple[str, int]]] = [
            ("unix", socket.AF_UNIX, socket.SOCK_STREAM, path),
            ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, f"\0warren-{secrets.token_hex(8)}"),
            ("inet", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            ("inet", socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0)),
            ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        ]
        listeners = []
        for family, domain, kind, address in places:
            sock = self._stack.enter_context(socket.socket(domain, kind))
            sock.bind(address)
            if kind == socket.SOCK_STREAM:
                sock.listen()
            sock.setblocking(False)
            name = sock.getsockname()
            where, port = (name[0], name[1]) if isinstance(name, tuple) else (os.fsdecode(name), 0)
            listeners.append(Listener(family, where, port, sock))
        os.chmod(path, 0o777)
        return tuple(listeners)

    def _fingerprint(self) -> dict[str, object]:
        seen: dict[str, object] = {"/dev/null": os.lstat("/dev/null").st_rdev, "host name": socket.gethostname()}
        for path in (*_WATCHED_FILES, *_WATCHED_SETTINGS, os.path.realpath(sys.executable)):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                status = os.fstat(file.fileno())
                seen[path] = (status.st_mode, status.st_uid, hashlib.sha256(file.read()).hexdigest())
        # How much of each is used changes by itself.
        with open("/proc/swaps", encoding="utf-8") as file:
            seen["swaps"] = [line.split()[0] for line in file]
        return seen


def _was_visited(sock: socket.socket) -> bool:
    try:
        if sock.type == socket.SOCK_DGRAM:
            sock.recv(1)
        else:
            sock.accept()[0].close()
    except BlockingIOError:
        return False
    return True
