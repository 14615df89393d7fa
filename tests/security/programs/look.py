"""Inside: look at everything there is to see, and report it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import sys
from typing import Any

_SECRET = re.compile(b"CANARY" + b"[0-9a-f]{32}")
_SKIPPED = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/proc/self", "/proc/thread-self", sys.base_prefix)
"""What is meant to be seen: the system's programs, the image and its interpreter."""
_MASK = os.makedev(1, 3)


def search(top: str) -> dict[str, Any]:
    """Read the beginning of every file below `top` that can be read."""
    found: list[str] = []
    devices: list[str] = []
    for place, folders, files in os.walk(top):
        folders[:] = [name for name in folders if os.path.join(place, name) not in _SKIPPED and name != "task"]
        for name in files:
            path = os.path.join(place, name)
            try:
                status = os.lstat(path)
                if stat.S_ISBLK(status.st_mode) or (stat.S_ISCHR(status.st_mode) and status.st_rdev != _MASK):
                    devices.append(path)
                elif stat.S_ISREG(status.st_mode) and _SECRET.search(_begin(path)):
                    found.append(path)
            except OSError:
                continue
    return {"secrets": found, "devices": sorted(devices)}


def _begin(path: str) -> bytes:
    # Some files of /proc block a reader for ever.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)


def processes() -> dict[str, str]:
    """Name every process in sight."""
    seen = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                seen[name] = _begin(f"/proc/{name}/cmdline").replace(b"\0", b" ").decode(errors="replace")
            except OSError as error:
                seen[name] = str(error.errno)
    return seen


def descriptors() -> dict[str, str]:
    """Say where each of our descriptors leads."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return found


def opened() -> dict[str, dict[str, Any]]:
    """Say of each descriptor of a file how it was opened, and whether its path leads there, on the same mount."""
    found = {}
    for fd, target in descriptors().items():
        try:
            again = os.open(target, os.O_RDONLY)
        except OSError:
            continue
        try:
            is_own = os.path.sameopenfile(int(fd), again) and mount_of(int(fd)) == mount_of(again)
            found[fd] = {"is_own": is_own, "mode": fcntl.fcntl(int(fd), fcntl.F_GETFL) & os.O_ACCMODE}
        except OSError:
            continue
        finally:
            os.close(again)
    return found


def mount_of(fd: int) -> str:
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        return next(line for line in file if line.startswith("mnt_id"))


print(
    json.dumps(
        {
            "search": search("/"),
            "processes": processes(),
            "descriptors": descriptors(),
            "opened": opened(),
            "environment": dict(os.environ),
            "root": sorted(os.listdir("/")),
            "dev": sorted(os.listdir("/dev")),
            "run": {place: files + folders for place, folders, files in os.walk("/run/warren") if files + folders},
            "tmp": os.listdir("/tmp"),
            "shm": os.listdir("/dev/shm"),
            "mounts": _begin("/proc/self/mountinfo").decode(),
            "interfaces": [line.split(":")[0].strip() for line in _begin("/proc/net/dev").decode().splitlines()[2:]],
            "uid": os.getuid(),
        }
    )
)
