"""Inside: try to read, write, remove or replace each path given, in every way there is; report what worked."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

OVER = "/tmp/instead"
with open(OVER, "w", encoding="utf-8") as file:
    file.write("instead")

_WAYS: dict[str, Callable[[str], object]] = {
    "read": lambda path: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)),
    "write": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)),
    "append": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)),
    "truncate": lambda path: os.truncate(path, 0),
    "chmod": lambda path: os.chmod(path, 0o777),
    "chown": lambda path: os.chown(path, 0, 0),
    "times": lambda path: os.utime(path, (0, 0)),
    "replace": lambda path: os.rename(OVER, path),
    "rename": lambda path: os.rename(path, path + ".old"),
    "unlink": os.unlink,
    "link": lambda path: os.link(path, "/tmp/linked"),
    "link over": lambda path: os.link(OVER, path),
    "symlink": lambda path: os.symlink("/tmp", path),
    "create below": lambda path: os.mkdir(os.path.join(path, "made")),
}


def attempt(way: Callable[[str], object], path: str) -> bool:
    """Tell whether it could be done."""
    try:
        way(path)
    except OSError:
        return False
    return True


paths, ways = globals()["ARGUMENTS"]
print(json.dumps({path: [name for name in ways if attempt(_WAYS[name], path)] for path in paths}))
