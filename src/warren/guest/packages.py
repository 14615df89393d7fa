"""Where a sandbox's own packages are, and whether they stand before something that is imported already."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping  # noqa: TC003  # cheap, and the runtime annotation stays true

_KEEP = frozenset({"warren"})


def search_path(env: Mapping[str, str]) -> list[str]:
    """Return the folders whose packages come before the image's, from the environment of the program."""
    listed = [env.get("WARREN_PACKAGES", ""), *env.get("PYTHONPATH", "").split(os.pathsep)]
    if "PYTHONUSERBASE" in env:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        listed.append(os.path.join(env["PYTHONUSERBASE"], "lib", version, "site-packages"))
    return list(dict.fromkeys(folder for folder in listed if folder))


def find_shadowed(folders: list[str]) -> str | None:
    """Name an imported package that one of these folders has another copy of; None when there is none."""
    # WHY: it asks for the names in the folders, which are few. Going through all that is imported would write to, and
    # so copy, a page for almost every name.
    for folder in folders:
        try:
            names = {name.partition(".")[0] for name in os.listdir(folder)}
        except OSError:
            continue
        for name in sorted(names - _KEEP):
            if name in sys.modules and name not in sys.stdlib_module_names and not _is_loaded_from(name, folder):
                return name
    return None


def _is_loaded_from(name: str, folder: str) -> bool:
    origin = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(origin, str) and origin.startswith(os.path.join(os.path.abspath(folder), ""))
