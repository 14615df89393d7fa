"""The tests on every Python that is there: those that can tell one from another, in an environment of its own for each.

    python tests/suites/pythons.py [--list | pytest's arguments]

`--list` says which are found, and runs nothing. PYTHONS names interpreters, with spaces between them; without it they
are looked for on PATH and where pyenv has its versions, the newest of each. One that is missing is named, and fails
only if PYTHONS names it.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys

_VERSIONS = ("3.11", "3.12", "3.13", "3.14")
_TESTS = (
    "tests/unit/guest",
    "tests/unit/local",
    "tests/unit/test_images_spec.py",
    "tests/unit/core/test_execution_local.py",
    "tests/property",
    "tests/conformance",
    "tests/api/test_kernels.py",
    "tests/e2e/test_first_use.py",
    "tests/e2e/test_local_survival.py",
    "tests/security/test_system_calls.py",
    "tests/security/test_privileges.py",
    "tests/security/test_looking_around.py",
)
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main(arguments: list[str]) -> int:
    """Run the tests on each Python, and say of each how that went."""
    named = os.environ.get("PYTHONS", "").split()
    wanted = {name: _describe(name) for name in named} or {version: _find(version) for version in _VERSIONS}
    for name, found in wanted.items():
        print(f"Python {name}: not found" if found is None else f"Python {found[1]}: {found[0]}", flush=True)
    if arguments == ["--list"]:
        return 0
    results: dict[str, str] = {}
    for name, found in wanted.items():
        if found is None:
            results[name] = "cannot be run" if named else "skipped: not on PATH, and pyenv has none"
        else:
            results[f"{found[1]} ({found[0]})"] = _test(*found, arguments or list(_TESTS))
    for name, result in results.items():
        print(f"Python {name}: {result}")
    return int(any(not result.startswith(("passed", "skipped")) for result in results.values()))


def _find(version: str) -> tuple[str, str] | None:
    """Find an interpreter: its path and its whole version."""
    home = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    candidates = glob.glob(f"{home}/versions/{version}.*/bin/python{version}")
    newest = sorted(candidates, key=lambda path: [int(number) for number in re.findall(r"\d+", path)], reverse=True)
    # pyenv's own command on PATH may answer that no version is chosen.
    for path in (shutil.which(f"python{version}"), *newest):
        if path is not None and (found := _describe(path)) is not None:
            return found
    return None


def _describe(python: str) -> tuple[str, str] | None:
    code = "import platform, sys; print(sys.executable, platform.python_version(), sep='\\n')"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return None
    path, _, version = done.stdout.strip().partition("\n")
    return (path, version) if done.returncode == 0 else None


def _test(python: str, version: str, arguments: list[str]) -> str:
    venv = os.path.join(".cache", "pythons", version)
    print(f"\nPython {version}", flush=True)
    if subprocess.run(["make", "setup", f"PYTHON={python}", f"VENV={venv}"], cwd=_ROOT, check=False).returncode:
        return "failed: its environment cannot be made"
    # Of the tests' own: a result of one Python must not be taken for that of another.
    cache = ["-o", f"cache_dir={venv}/.pytest_cache"]
    command = [f"{venv}/bin/pytest", "--quiet", "--numprocesses", "2", "--dist", "loadfile", *cache, *arguments]
    code = subprocess.run(command, cwd=_ROOT, check=False).returncode
    return "passed" if code == 0 else f"failed: pytest ended with {code}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
