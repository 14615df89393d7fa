"""What is run in sandboxes of the guest, and what must have become of it."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vm.console import Console, Result

HUNGRY = "x = bytearray(1 << 30); print(len(x))"
"""Takes a gigabyte of memory."""

GREEDY = """
import os, time
began, used = time.monotonic(), time.process_time()
while time.monotonic() - began < 4:
    pass
print("share", round((time.process_time() - used) / (time.monotonic() - began), 2), flush=True)
try:
    with open("big", "wb", 0) as file:
        for written in range(200):
            file.write(bytes(1 << 20))
except OSError as exc:
    print("disk", written, exc.strerror, flush=True)
forks = 0
try:
    while forks < 1000:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        forks += 1
except OSError as exc:
    print("forks", forks, exc.strerror, flush=True)
"""
"""Takes as much of processors, disk and processes as it gets, and says how much that was."""

FORKS_MAX = 256


def warren_run(console: Console, code: str, *options: str, before: str = "") -> Result:
    """Run Python in a fresh sandbox, with words before the command if any."""
    return console.run(f"{before} warren run {shlex.join(options)} -c {shlex.quote(code)}", 30)


def check_memory(console: Console, before: str = "") -> None:
    """Fail unless a limit of memory holds, and is named as the cause."""
    ended = warren_run(console, HUNGRY, "--memory", "200M", before=before)

    assert ended.code == 137, ended
    assert "it ran out of memory" in ended.output, ended


def check_the_rest(console: Console, before: str = "") -> None:
    """Fail unless limits of processors, disk and processes hold."""
    ended = warren_run(console, GREEDY, "--cpus", "0.5", "--disk", "64M", before=before)

    share = re.search(r"^share ([\d.]+)$", ended.output, re.MULTILINE)
    assert share is not None, ended
    assert 0.2 <= float(share[1]) <= 0.65, ended
    disk = re.search(r"^disk (\d+) No space left on device$", ended.output, re.MULTILINE)
    assert disk is not None, ended
    assert 16 <= int(disk[1]) <= 80, ended
    forks = re.search(r"^forks (\d+) Resource temporarily unavailable$", ended.output, re.MULTILINE)
    assert forks is not None, ended
    assert 16 <= int(forks[1]) <= FORKS_MAX, ended


def check_nothing_left(root: Console) -> None:
    """Fail if a process, a control group, a mount or a loop device of Warren is still in the guest."""
    assert root.run("pgrep --list-full --full warren").output == ""
    # The slice is systemd's, for limits on all that comes to be in it: it may stay, empty.
    assert root.run("find /sys/fs/cgroup -type d -path '*warren*' ! -name warren.slice").output == ""
    assert root.run("grep -s warren /proc/[0-9]*/mounts").output == ""
    assert root.run("losetup --all").output == ""
