"""System packages of an image: which are missing, the command that installs them, and the installation.

They are the host's, because a sandbox sees the host's /usr: dpkg knows them, and only root installs them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from warren.core.images.progress import BuildStep, run
from warren.domain.errors import BuildFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from warren.core.images.parts import Parts
    from warren.core.images.progress import Build

_APT = ("apt-get", "install", "--yes", "--no-install-recommends")
_NEW = re.compile(r"\d+ upgraded, (\d+) newly installed")
_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_TIMEOUT_S = 60.0


def find_missing(parts: Parts) -> tuple[str, ...]:
    """Return what this host lacks: packages on Debian, else programs."""
    if not parts.packages and not parts.commands:
        return ()
    if shutil.which("dpkg-query", path=_ENV["PATH"]) is None:
        return tuple(name for name in parts.commands if shutil.which(name, path=_ENV["PATH"]) is None)
    wanted = [_names(package) for package in parts.packages]
    installed = _installed({name for names in wanted for name in names})
    missing = [names for names in wanted if not installed.intersection(names)]
    known = _known({name for names in missing if len(names) > 1 for name in names})
    return tuple(next((name for name in names if name in known), names[0]) for names in missing)


def build_command(missing: Sequence[str]) -> str:
    """Return the command that installs what is missing, or a sentence where there is no apt."""
    if shutil.which("apt-get", path=_ENV["PATH"]) is None:
        return f"install the programs {', '.join(missing)} with this system's package manager"
    root = "" if os.geteuid() == 0 else "sudo "
    return f"run `{root}apt-get update && {root}{' '.join((*_APT, *missing))}`"


def install_missing(build: Build) -> None:
    """Install what is missing. Raises BuildFailed with the command for root, unless this is root."""
    missing = find_missing(build.spec.parts) if build.spec.root == "host" else ()
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get", path=_ENV["PATH"]) is None:
        raise BuildFailed(
            f"image {build.spec.name} needs what this system does not have ({', '.join(missing)}): "
            f"{build_command(missing)}, then build it again"
        )
    build.progress(BuildStep("system", f"{len(missing)} packages"))
    try:
        _apt(build, missing)
    except BuildFailed:
        # WHY: package lists that were never fetched, or are old, name files that no longer exist.
        _run_apt(build, ["apt-get", "update"])
        missing = find_missing(build.spec.parts)
        _apt(build, missing)


def _apt(build: Build, missing: Sequence[str]) -> None:
    total = done = 0

    def on_line(line: str) -> None:
        nonlocal total, done
        if match := _NEW.match(line):
            total = 2 * int(match[1])
        elif line.startswith(("Unpacking ", "Setting up ")):
            done += 1
            build.progress(BuildStep("system", line.partition(" (")[0].strip(), min(done, total), total))

    _run_apt(build, [*_APT, *missing], on_line)


def _run_apt(build: Build, command: Sequence[str], on_line: Callable[[str], None] | None = None) -> None:
    env = {**_ENV, "DEBIAN_FRONTEND": "noninteractive"}
    # WHY as a whole: a package manager that is killed half-way leaves a broken system.
    run(build, [*command, "--option=DPkg::Lock::Timeout=300"], on_line, env=env, whole=True)


def _names(package: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in package.split("|"))


def _installed(names: Collection[str]) -> set[str]:
    lines = _ask(["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *sorted(names)])
    return {name for name, _, status in (line.partition(" ") for line in lines) if status == "installed"}


def _known(names: Collection[str]) -> set[str]:
    """Return the names that apt can install."""
    if not names or shutil.which("apt-cache", path=_ENV["PATH"]) is None:
        return set()
    return set(_ask(["apt-cache", "pkgnames"])).intersection(names)


def _ask(command: Sequence[str]) -> list[str]:
    # WHY no check: dpkg-query fails when it does not know one name, and still reports the others.
    asked = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=_ENV, timeout=_TIMEOUT_S, check=False
    )
    return asked.stdout.splitlines()
