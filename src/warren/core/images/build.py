"""Builds the folder of one image with uv.

Rule 1: no code of a package runs here, because a build may run as root. Only wheels are installed, preloads are looked
   up and not imported, and Node.js packages are unpacked without their scripts. The programs that run are uv, the
   system's package manager where packages are missing, and npm, whose hash is in the lock.
Rule 2: no file in the folder names a host path, except `image.json`: sandboxes see the folder at another path.
"""

from __future__ import annotations

import importlib.machinery
import os
import re
import shutil
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

from warren.core.images.extras import add_browser, add_fonts, add_node
from warren.core.images.progress import VENV_INSIDE, BuildStep, find_trust, run
from warren.core.images.system import install_missing
from warren.domain.errors import BuildFailed

if TYPE_CHECKING:
    from warren.core.images.progress import Build
    from warren.core.images.spec import ImageSpec, Interpreter

LOCK_FILE = "requirements.lock"

_RESOLVED = re.compile(r"Resolved (\d+) packages?")
_STARTED = re.compile(r"Downloading (\S+)(?: \(([\d.]+ ?\w+)\))?")
_FINISHED = re.compile(r"\s*Downloaded (\S+)")
_OWN_PYTHON = """\
#!/opt/image/bin/python -IS
import sys
sys.path.insert(0, "/opt/warren")
from warren.guest import own_environment
own_environment.main()
"""
# One line, because only lines that begin with `import` are run. The sandbox's own packages come before the image's and
# after the standard library, as in any environment on top of another.
_PTH = (
    "import os, sys; own = os.environ.get('WARREN_PACKAGES'); own and own not in sys.path and "
    "sys.path.insert(next((at for at, path in enumerate(sys.path) if path.endswith('site-packages')), "
    "len(sys.path)), own)\n"
)


def build_folder(build: Build) -> None:
    """Fill an empty folder with the image's `venv` and its lock. Raises BuildFailed; the caller removes the folder."""
    venv = f"{build.folder}/venv"
    install_missing(build)
    build.progress(BuildStep("resolving", f"{len(build.spec.packages)} packages"))
    run(build, [*_uv(), "venv", "--no-project", "--python", build.interpreter.executable, venv])
    _write_lock(build)
    _install(build)
    add_node(build)
    add_fonts(build)
    build.progress(BuildStep("compiling", "bytecode"))
    _compile(build)
    build.progress(BuildStep("finishing"))
    _move_inside(build.interpreter, venv)
    _add_tools(venv, build.interpreter.name)
    add_browser(build)
    check_preload(build.spec, build.interpreter, venv)
    _open_to_all(build.folder)


def _add_tools(venv: str, python_name: str) -> None:
    """Add what every image has: uv, and the environment of packages that a sandbox installs for itself."""
    import uv

    own = f"{venv}/bin/own-python"
    with open(own, "w", encoding="utf-8") as file:
        file.write(_OWN_PYTHON)
    os.chmod(own, 0o755)  # noqa: S103 - sandboxes run it as users of their own
    with open(f"{venv}/lib/{python_name}/site-packages/warren-own.pth", "w", encoding="utf-8") as file:
        file.write(_PTH)
    target = f"{venv}/bin/uv"
    if not os.path.lexists(target):
        shutil.copyfile(uv.find_uv_bin(), target)
        os.chmod(target, 0o755)  # noqa: S103 - as above


def check_preload(spec: ImageSpec, interpreter: Interpreter, venv: str) -> None:
    """Raise BuildFailed when a module of the preload list is neither in the image nor in the standard library."""
    library = f"lib/{interpreter.name}"
    path = [f"{venv}/{library}/site-packages", f"{interpreter.prefix}/{library}"]
    path.append(f"{path[1]}/lib-dynload")
    for module in spec.preload:
        if not _is_there(module, path):
            raise BuildFailed(
                f"image {spec.name} preloads {module}, but none of its packages holds that: correct {spec.path}"
            )


def _is_there(module: str, path: list[str]) -> bool:
    if module in sys.builtin_module_names:
        return True
    name = ""
    search: list[str] | None = path
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        if search is None:
            return False
        found = importlib.machinery.PathFinder.find_spec(name, search)
        if found is None:
            return False
        search = None if found.submodule_search_locations is None else list(found.submodule_search_locations)
    return True


def _write_lock(build: Build) -> None:
    lock = f"{build.folder}/{LOCK_FILE}"
    if build.spec.lock is not None:
        with open(lock, "w", encoding="utf-8") as file:
            file.write(build.spec.lock)
        return
    wanted = f"{build.folder}/requirements.in"
    with open(wanted, "w", encoding="utf-8") as file:
        file.write("\n".join(build.spec.packages))
    command = [*_uv(), "pip", "compile", "--quiet", "--generate-hashes", "--no-emit-index-url", "--no-header"]
    run(build, [*command, "--no-annotate", "--python", build.interpreter.executable, wanted, "-o", lock])
    os.unlink(wanted)


def _install(build: Build) -> None:
    total, started, finished = 0, 0, 0

    def on_line(line: str) -> None:
        nonlocal total, started, finished
        if match := _RESOLVED.match(line):
            total = int(match[1])
            build.progress(BuildStep("downloading", f"{total} packages"))
        elif match := _STARTED.match(line):
            started += 1
            build.progress(BuildStep("downloading", " ".join(filter(None, match.groups())), finished, started))
        elif match := _FINISHED.match(line):
            finished += 1
            build.progress(BuildStep("downloading", match[1], finished, started))
        elif line.startswith("Prepared"):
            build.progress(BuildStep("installing", f"{total} packages", 0, total))
        elif line.startswith("Installed"):
            build.progress(BuildStep("installing", f"{total} packages", total, total))

    # WHY copies: a file shared with uv's cache would change with the cache.
    command = [*_uv(), "pip", "install", "--python", f"{build.folder}/venv", "--link-mode", "copy"]
    run(build, [*command, "--only-binary", ":all:", "--require-hashes", "-r", f"{build.folder}/{LOCK_FILE}"], on_line)


def _compile(build: Build) -> None:
    """Compile every module under its path inside sandboxes, so that no host path is baked in."""
    venv = f"{build.folder}/venv"
    command = [build.interpreter.executable, "-I", "-m", "compileall", "-q", "-j", "0", "-f", "-s", venv]
    # WHY: some packages ship files that are invalid for this Python on purpose; as with pip, they stay uncompiled.
    with subprocess.Popen(
        [*command, "-p", VENV_INSIDE, "--invalidation-mode", "unchecked-hash", f"{venv}/lib"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        pass_fds=(build.lock_fd,),
    ) as process:
        build.stop.attach(process)
    build.stop.check()


def _move_inside(interpreter: Interpreter, venv: str) -> None:
    """Rewrite the paths of the environment to those inside sandboxes."""
    with open(f"{venv}/pyvenv.cfg", "w", encoding="utf-8") as file:
        file.write(f"home = {interpreter.inside}/bin\ninclude-system-site-packages = false\n")
        file.write(f"version = {interpreter.version}\n")
    for name in (".gitignore", ".lock", "CACHEDIR.TAG"):
        if os.path.exists(f"{venv}/{name}"):
            os.unlink(f"{venv}/{name}")
    for entry in list(os.scandir(f"{venv}/bin")):
        if entry.name.startswith("python"):
            os.unlink(entry.path)
        elif entry.is_file(follow_symlinks=False):
            _move_script_inside(entry.path, venv)
    os.symlink(interpreter.executable_inside, f"{venv}/bin/python")
    for name in ("python3", interpreter.name):
        os.symlink("python", f"{venv}/bin/{name}")


def _move_script_inside(path: str, venv: str) -> None:
    with open(path, "rb") as file:
        content = file.read()
    if not os.access(path, os.X_OK):
        os.unlink(path)  # activate scripts: an environment that is always active needs none
        return
    moved = re.sub(
        rb"\A#!/bin/sh\n'''exec' '?" + re.escape(venv.encode()) + rb"/bin/python[\d.]*'? \"\$0\" \"\$@\"\n' '''\n",
        f"#!{VENV_INSIDE}/bin/python\n".encode(),
        content,
    ).replace(f"#!{venv}/bin/".encode(), f"#!{VENV_INSIDE}/bin/".encode(), 1)
    if moved != content:
        with open(path, "wb") as file:
            file.write(moved)


def _open_to_all(folder: str) -> None:
    """Make the image readable for every uid and writable for none: sandboxes run as users of their own."""
    os.chmod(folder, 0o755)  # noqa: S103 - see above
    for parent, folders, files in os.walk(folder):
        for name in folders:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                os.chmod(path, 0o755)  # noqa: S103 - see above
        for name in files:
            path = os.path.join(parent, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode):
                os.chmod(path, 0o755 if mode & 0o100 else 0o644)


def _uv() -> list[str]:
    import uv

    # WHY: uv brings its own list of authorities; those that this machine trusts are added.
    trust = [] if find_trust() is None else ["--system-certs"]
    return [str(uv.find_uv_bin()), *trust]
