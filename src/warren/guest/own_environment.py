"""The sandbox's own Python environment: a folder of its workspace on top of the image, which is read-only.

pip and uv install with `/opt/image/bin/own-python` (PIP_PYTHON, UV_PYTHON). It execs the interpreter of that
environment, which it makes at the first call, or of one that the program chose itself.

This module keeps its name and place: images that were built earlier call it as `warren.guest.own_environment`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator, Mapping  # noqa: TC003  # cheap, and the runtime annotation stays true
from typing import NoReturn

_SHOWN = frozenset({"METADATA", "WHEEL", "entry_points.txt", "namespace_packages.txt", "top_level.txt"})
_MARK = "warren-image.pth"
"""Names the image's packages and its build; written last, so an environment that has it is complete."""


def main() -> NoReturn:
    """Exec the interpreter with the same arguments."""
    image = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
    python = find_chosen(image, os.environ, _read_parent()) or make(image, find_folder(os.environ))
    os.execv(python, [python, *sys.argv[1:]])  # noqa: S606  # our own interpreter, no shell


def find_folder(env: Mapping[str, str]) -> str:
    """Return the folder of the environment, from the search path of programs."""
    packages = env.get("WARREN_PACKAGES") or "/workspace/.packages/lib/pythonX/site-packages"
    return os.path.dirname(os.path.dirname(os.path.dirname(packages)))


def find_chosen(image: str, env: Mapping[str, str], parent: str) -> str | None:
    """Return the interpreter of an environment that the program made itself and uses; None without one."""
    own = os.path.join(find_folder(env), "")
    candidates = [env.get("VIRTUAL_ENV", "")]
    if os.path.basename(parent) == "uv":
        candidates.append(os.path.join(os.getcwd(), ".venv"))
    else:
        found = parent if "/" in parent else shutil.which(parent, path=env.get("PATH")) or ""
        candidates.append(os.path.dirname(os.path.dirname(os.path.abspath(found))) if found else "")
    for folder in candidates:
        python = os.path.join(folder, "bin", "python")
        is_other = folder and folder != image and not os.path.join(folder, "").startswith(own)
        if is_other and os.path.exists(os.path.join(folder, "pyvenv.cfg")) and os.path.exists(python):
            return python
    return None


def make(image: str, folder: str) -> str:
    """Make the environment for the Python of this image, if it is missing; returns its interpreter."""
    library = os.path.join("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")
    python = os.path.join(folder, "bin", "python")
    target = os.readlink(os.path.join(image, "bin", "python"))
    packages, mark = os.path.join(image, library), os.path.join(folder, library, _MARK)
    said = f"# {os.stat(packages).st_mtime_ns}\n{packages}\n"

    def is_made() -> bool:
        with contextlib.suppress(OSError):
            return os.readlink(python) == target and _read(mark) == said
        return False

    if is_made():
        return python
    os.makedirs(os.path.join(folder, library), exist_ok=True)
    os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
    with _locked(folder):
        # Another process may have made it meanwhile, and its installer may already replace parts of it.
        if is_made():
            return python
        _put(os.path.join(folder, "pyvenv.cfg"), _read(os.path.join(image, "pyvenv.cfg")))
        for name, leads_to in (("python", target), ("python3", "python")):
            _link(leads_to, os.path.join(folder, "bin", name))
        _forget_gone(os.path.join(folder, library))
        _show_packages(packages, os.path.join(folder, library), os.path.join(folder, ".making"))
        _put(mark, said)
    return python


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Lock out other processes that make the same, until this one is done or dead."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def _forget_gone(library: str) -> None:
    """Remove packages that an earlier build of the image had, and this one has not."""
    for name in os.listdir(library):
        metadata = os.path.join(library, name, "METADATA")
        if name.endswith(".dist-info") and os.path.islink(metadata) and not os.path.exists(metadata):
            shutil.rmtree(os.path.join(library, name), ignore_errors=True)


def _show_packages(packages: str, library: str, making: str) -> None:
    """Show every package of the image; each is made aside and renamed, so that it is complete also after a kill."""
    shutil.rmtree(making, ignore_errors=True)
    os.mkdir(making)
    for name in os.listdir(packages):
        # A second run, for another build of the image, leaves installed packages alone.
        if name.endswith(".dist-info") and not os.path.lexists(os.path.join(library, name)):
            _show(os.path.join(packages, name), os.path.join(making, name))
            os.rename(os.path.join(making, name), os.path.join(library, name))
    os.rmdir(making)


def _show(source: str, target: str) -> None:
    """Make installers see a package of the image as installed here, so that they neither fetch nor shadow it.

    To replace it by another version they remove it as any other: by the names in RECORD, which are links.
    """
    name = os.path.basename(target)
    files = sorted(_SHOWN.intersection(os.listdir(source)))
    os.mkdir(target)
    for file in files:
        os.symlink(os.path.join(source, file), os.path.join(target, file))
    _put(os.path.join(target, "INSTALLER"), "image\n")
    record = "".join(f"{name}/{file},,\n" for file in [*files, "INSTALLER", "RECORD"])
    _put(os.path.join(target, "RECORD"), record)


def _link(leads_to: str, path: str) -> None:
    temporary = f"{path}.new"
    # Left by a process that was killed.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    os.symlink(leads_to, temporary)
    os.replace(temporary, path)


def _put(path: str, text: str) -> None:
    temporary = f"{path}.new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _read_parent() -> str:
    try:
        return _read(f"/proc/{os.getppid()}/cmdline").partition("\0")[0]
    except (OSError, UnicodeError):
        return ""
