"""The search path of a sandbox's own packages, and whether one shadows a module that is imported already."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping  # noqa: TC003  # cheap, and the runtime annotation stays true
from importlib.machinery import PathFinder
from typing import Any

_KEEP = frozenset({"warren"})


def search_path(env: Mapping[str, str]) -> list[str]:
    """Return the folders that precede the image's packages, from the environment of the program."""
    listed = [env.get("WARREN_PACKAGES", ""), *env.get("PYTHONPATH", "").split(os.pathsep)]
    if "PYTHONUSERBASE" in env:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        listed.append(os.path.join(env["PYTHONUSERBASE"], "lib", version, "site-packages"))
    return list(dict.fromkeys(folder for folder in listed if folder))


def find_shadowed(folders: list[str]) -> str | None:
    """Name an imported package that one of these folders has another copy of; None when there is none."""
    # WHY: it goes through the names in the folders, which are few. Going through all imported modules would write to,
    # and so copy, a page for almost every one.
    for folder in folders:
        try:
            names = {name.partition(".")[0] for name in os.listdir(folder)}
        except OSError:
            continue
        for name in sorted(names - _KEEP):
            if name in sys.modules and name not in sys.stdlib_module_names and not _is_loaded_from(name, folder):
                return name
    return None


class Watch:
    """Notices, between two cells, that an installed package shadows a module of this kernel."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._folder = env.get("WARREN_PACKAGES", "")
        self._seen = self._look()
        self._told = ""

    def find_news(self) -> str | None:
        """Return a sentence about a new shadowing package, once; otherwise None."""
        seen = self._look() if self._folder else 0
        if seen == self._seen:
            return None
        self._seen = seen
        name = find_shadowed([self._folder])
        if name is None or name == self._told:
            return None
        self._told = name
        return f"This kernel has imported another {name} than the one that was installed: restart it to use that."

    def _look(self) -> int:
        try:
            return os.stat(self._folder).st_mtime_ns
        except OSError:
            return 0


class LateFinder:
    """Finds modules in a folder that did not exist at its first search: Python would never search it again."""

    def find_spec(self, name: str, path: object = None, _target: object = None) -> Any:
        """Search after all other finders."""
        folder = os.environ.get("WARREN_PACKAGES", "")
        if path is None and folder and sys.path_importer_cache.get(folder, self) is None and os.path.isdir(folder):
            del sys.path_importer_cache[folder]
            return PathFinder.find_spec(name)
        return None


def _is_loaded_from(name: str, folder: str) -> bool:
    origin = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(origin, str) and origin.startswith(os.path.join(os.path.abspath(folder), ""))
