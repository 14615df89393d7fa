"""One bare sandbox on this host: its folder, its processes, and how its agent is started."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import warren
from warren.domain.errors import StartFailed
from warren.domain.values import Usage
from warren.engines import procfs, state_files, unix_sockets
from warren.engines.bare import launch
from warren.guest.wire.boot import Boot

if TYPE_CHECKING:
    from warren.domain.values import SandboxSpec

_MARK = "WARREN_SANDBOX"
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Set before anything is imported: a process with threads cannot be forked from."""


class BareSandbox:
    """The folder of one sandbox: its record, its socket, its workspace, and the mark of its processes."""

    def __init__(self, path: str, sandbox_id: str) -> None:
        self.path = path
        self.socket = os.path.join(path, "agent.sock")
        self.workspace = os.path.join(path, "workspace")
        self.temporary = os.path.join(path, "tmp")
        self.log = os.path.join(path, "agent.log")
        self.mark = f"{_MARK}={sandbox_id}".encode()

    def record(self) -> dict[str, Any]:
        """Read the record; empty for a half-made sandbox."""
        return state_files.load(os.path.join(self.path, "record.json"))

    def write_record(self, value: dict[str, Any]) -> None:
        """Replace the record."""
        state_files.save(os.path.join(self.path, "record.json"), value)

    def is_running(self) -> bool:
        """Whether the agent that the record names is alive."""
        return procfs.is_alive(*self._agent())

    def kill(self) -> bool:
        """Kill every process of the sandbox; False when some do not end."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        return procfs.kill_all(self.mark, self._agent())

    def empty_workspace(self) -> None:
        """Delete the content of the workspace."""
        for folder in (self.workspace, self.temporary):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder, mode=0o700, exist_ok=True)

    def remove(self) -> None:
        """Kill and delete everything."""
        self.kill()
        _unlock_folders(self.path)
        shutil.rmtree(self.path, ignore_errors=True)

    def usage(self) -> Usage:
        """Measure processes and files."""
        processes = procfs.find(self.mark, self._agent())
        used, inodes = 0, 0
        for folder, folders, files in os.walk(self.workspace):
            inodes += len(folders) + len(files)
            for name in files:
                with contextlib.suppress(OSError):
                    used += os.lstat(os.path.join(folder, name)).st_blocks * 512
        return Usage(
            memory_bytes=sum(procfs.private_bytes(p.pid) for p in processes),
            memory_peak_bytes=None,
            cpu_us=sum(p.cpu_us for p in processes),
            pids=sum(p.threads for p in processes),
            disk_bytes=used,
            disk_inodes=inodes,
        )

    def _agent(self) -> tuple[int, int]:
        record = self.record()
        return record.get("pid", 0), record.get("start", 0)


def find_interpreter(home: str, spec: SandboxSpec) -> str:
    """Give a host path that runs the image's Python; ours, without an image. Raises StartFailed if it is not built."""
    image = spec.image
    if not image.path:
        return sys.executable
    library = os.path.join(image.path, "venv", "lib")
    try:
        name = next(name for name in os.listdir(library) if name.startswith("python3"))
    except (OSError, StopIteration):
        raise StartFailed(f"image {image.name} is not built: there is no Python in {library}") from None
    # The image's own `venv/bin/python` names paths that only sandboxes see, so this makes another around its library.
    folder = os.path.join(home, f"image-{hashlib.sha256(os.fsencode(image.path)).hexdigest()[:12]}")
    os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
    _configure(folder, f"home = {image.interpreter_prefix}/bin\ninclude-system-site-packages = false\n")
    for link, target in (("lib", library), ("bin/python", f"{image.interpreter_prefix}/bin/{name}")):
        with contextlib.suppress(FileExistsError):
            os.symlink(target, os.path.join(folder, link))
    return os.path.join(folder, "bin", "python")


def _configure(folder: str, text: str) -> None:
    """Write an interpreter's configuration atomically: another interpreter may be starting, and reads it."""
    path = os.path.join(folder, "pyvenv.cfg")
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as config:
        if config.read() == text:
            return
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as config:
        config.write(text)
    os.replace(f"{path}.{os.getpid()}", path)


def start_agent(place: BareSandbox, spec: SandboxSpec, python: str, library: str) -> tuple[int, int]:
    """Start the agent; returns its pid and start time. The socket accepts at once; the agent answers when ready."""
    for folder in (place.workspace, place.temporary):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    env = _environment(place, spec, python)
    boot_fd = os.memfd_create("boot")
    try:
        with unix_sockets.listen(place.socket) as listener, open(place.log, "wb") as log:
            boot = _boot(place, spec, env, listener.fileno())
            os.write(boot_fd, json.dumps(boot.to_json()).encode())
            os.lseek(boot_fd, 0, os.SEEK_SET)
            done = subprocess.run(
                [python, "-I", launch.__file__, library, str(boot_fd)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=(boot_fd, listener.fileno()),
                env={**env, **dict.fromkeys(_ONE_THREAD, "1")},
                cwd=place.workspace,
                check=False,
            )
    except OSError as exc:
        raise StartFailed(f"{python} cannot be started: {exc.strerror}") from exc
    finally:
        os.close(boot_fd)
    pid = int(done.stdout or 0)
    return pid, procfs.start_time(pid)


def _boot(place: BareSandbox, spec: SandboxSpec, env: dict[str, str], listener_fd: int) -> Boot:
    return Boot(
        sandbox_id=spec.id,
        listener_fd=listener_fd,
        workspace=place.workspace,
        env=env,
        limits=dataclasses.asdict(spec.limits),
        contained=False,
        preload=spec.image.preload,
        single_use=spec.single_use,
    )


def _environment(place: BareSandbox, spec: SandboxSpec, python: str) -> dict[str, str]:
    return {
        "PATH": f"{os.path.dirname(python)}:/usr/local/bin:/usr/bin:/bin",
        "HOME": place.workspace,
        "TMPDIR": place.temporary,
        "LANG": "C.UTF-8",
        **spec.image.env,
        **spec.common_env,
        **spec.env,
        _MARK: spec.id,
    }


def link_library(home: str) -> str:
    """Make a folder in which the image's interpreter finds `warren` and nothing else of this environment."""
    package = os.path.dirname(os.path.abspath(warren.__file__))
    folder = os.path.join(home, f"library-{hashlib.sha256(os.fsencode(package)).hexdigest()[:12]}")
    os.makedirs(folder, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.symlink(package, os.path.join(folder, "warren"))
    return folder


def _unlock_folders(path: str) -> None:
    """Restore the permissions that user code took from its folders, so that they can be emptied."""
    for parent, folders, _ in os.walk(path):
        for name in folders:
            folder = os.path.join(parent, name)
            if not os.path.islink(folder):
                with contextlib.suppress(OSError):
                    os.chmod(folder, 0o700)
