"""Where the house rules look: the files under version control, by kind."""

from __future__ import annotations

import functools
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@functools.cache
def tracked() -> tuple[str, ...]:
    """Return every file that belongs to the repository and is there, relative to its root."""
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    names = sorted({name.decode() for name in output.split(b"\0") if name})
    return tuple(name for name in names if os.path.exists(os.path.join(ROOT, name)))


def files(*, under: str = "", suffix: str = "") -> list[str]:
    """Return the tracked files below a folder with an ending."""
    return [name for name in tracked() if name.startswith(under) and name.endswith(suffix)]


def read(name: str) -> str:
    """Return the text of a file of the repository."""
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()
