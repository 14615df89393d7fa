"""Package installer, a program with the arguments `python` or `npm`, 0 or 1 to upgrade, and the package names.

It runs uv, or pip where there is no uv, or npm, and passes their output on. Its last line lists the installed packages
for the service, which treats it as a claim of a program in a sandbox.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

from warren.guest import own_environment

MARK = "\x1ewarren-installed "
_INDEX = "http://packages.warren.internal/pypi"
"""The service's own index, which has pages for each Python."""


def main(arguments: list[str]) -> int:
    """Install, and print the installed packages; returns the exit code."""
    ecosystem, upgrade, *names = arguments
    install = _install_python if ecosystem == "python" else _install_npm
    code, before, after = install(names, upgrade == "1")
    asked = {_plain(name) for name in names}
    there = sorted(item for item in after.items() if _plain(item[0]) in asked or before.get(item[0]) != item[1])
    sys.stdout.flush()
    replaced = sorted(name for name, version in there if before.get(name, version) != version)
    sys.stdout.write(f"{MARK}{json.dumps({'packages': there, 'replaced': replaced})}\n")
    return code


def _install_python(names: list[str], upgrade: bool) -> tuple[int, dict[str, str], dict[str, str]]:
    image = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
    folder = own_environment.find_folder(os.environ)
    python = own_environment.make(image, folder)
    library = os.path.join(folder, "lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")
    before = _list_python(library)
    uv = os.path.join(image, "bin", "uv")
    options = ["--upgrade"] if upgrade else []
    if os.access(uv, os.X_OK):
        options += narrow_index(os.environ.get("UV_DEFAULT_INDEX", ""))
        command = [uv, "pip", "install", "--no-progress", "--python", python, *options, "--", *names]
    else:
        command = [python, "-m", "pip", "install", "--no-input", "--progress-bar", "off", *options, "--", *names]
    code = _run(command)
    # Its unpacked files are hard links of the installed ones.
    shutil.rmtree(os.path.join(folder, "cache", "uv"), ignore_errors=True)
    return code, before, _list_python(library)


def narrow_index(index: str) -> list[str]:
    """Make uv read index pages that list only files for this Python: most pages list many others."""
    if index != f"{_INDEX}/simple/" or sys.implementation.name != "cpython":
        return []
    this = f"cp{sys.version_info.major}{sys.version_info.minor}-{os.uname().machine}"
    return ["--default-index", f"{_INDEX}/for/{this}/simple/"]


def _install_npm(names: list[str], upgrade: bool) -> tuple[int, dict[str, str], dict[str, str]]:
    npm = shutil.which("npm")
    if npm is None:
        sys.stderr.write("There is no npm in this image: make the sandbox from one that has Node.js, such as office.\n")
        return 127, {}, {}
    if upgrade:
        names = [name if "@" in name[1:] else f"{name}@latest" for name in names]
    before = _list_npm()
    code = _run([npm, "install", "--no-audit", "--no-fund", "--no-progress", "--", *names])
    return code, before, _list_npm()


def _run(command: list[str]) -> int:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        sys.stderr.write(f"{os.path.basename(command[0])} could not be started: {error.strerror}.\n")
        return 127


def _list_python(library: str) -> dict[str, str]:
    """List the installed packages by folder names: reading their metadata would take longer than the install."""
    found = {}
    for name in os.listdir(library):
        if name.endswith(".dist-info"):
            package, _, version = name.removesuffix(".dist-info").partition("-")
            found[package.replace("_", "-")] = version
    return found


def _list_npm() -> dict[str, str]:
    try:
        with open(os.path.join("node_modules", ".package-lock.json"), encoding="utf-8") as file:
            packages = json.load(file)["packages"]
        found = {path.rpartition("node_modules/")[2]: str(one["version"]) for path, one in packages.items() if path}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return {}
    return found


def _plain(name: str) -> str:
    """Return a name without its version and extras, in one spelling."""
    plain = re.split(r"[\s\[<>=!~;@]", name[1:], maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name[0] + plain).lower()
