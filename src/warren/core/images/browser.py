"""Chromium of an image: one program on the path, also at the place where Playwright looks for its own browsers."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

from warren.core.images.progress import VENV_INSIDE
from warren.domain.errors import BuildFailed

if TYPE_CHECKING:
    from warren.core.images.progress import Build

PROGRAM = "bin/chromium"
BROWSERS = "lib/browsers"

_SCRIPT = """#!/bin/sh
# Chromium's own sandbox is made of namespaces, and this one allows none within it: it is the sandbox.
for program in {programs}; do
    if [ -x "$program" ]; then exec "$program" --no-sandbox "$@"; fi
done
echo "there is no Chromium on this machine: 'warren doctor' says which package brings it" >&2
exit 127
"""
_LATER = 4102444800
"""The year 2100: Playwright checks again when the mark is a month old, and no process inside can renew it."""
_PLACES = {
    "chromium": ("chrome-linux64/chrome", "chrome-linux-arm64/chrome"),
    "chromium-headless-shell": (
        "chrome-headless-shell-linux64/chrome-headless-shell",
        "chrome-headless-shell-linux-arm64/chrome-headless-shell",
    ),
}
"""Path of a browser's program below the folder of its revision, by architecture."""


def add_browser(build: Build) -> None:
    """Write the program, and Playwright's names for it where Playwright is installed."""
    programs = build.spec.parts.browser
    if not programs:
        return
    venv = f"{build.folder}/venv"
    with open(f"{venv}/{PROGRAM}", "w", encoding="utf-8") as file:
        file.write(_SCRIPT.format(programs=" ".join(programs)))
    os.chmod(file.name, stat.S_IRWXU)
    package = f"{venv}/lib/{build.interpreter.name}/site-packages/playwright/driver/package"
    if not os.path.isdir(package):
        return
    for name, revision in _read_revisions(f"{package}/browsers.json"):
        folder = f"{venv}/{BROWSERS}/{name.replace('-', '_')}-{revision}"
        for place in _PLACES.get(name, ()):
            os.makedirs(os.path.dirname(f"{folder}/{place}"))
            os.symlink(f"{VENV_INSIDE}/{PROGRAM}", f"{folder}/{place}")
            _mark_checked(folder)


def _mark_checked(folder: str) -> None:
    """Mark the libraries of the browser as checked, for good: it is the system's browser, not Playwright's build."""
    marker = f"{folder}/DEPENDENCIES_VALIDATED"
    with open(marker, "w", encoding="utf-8"):
        os.utime(marker, (_LATER, _LATER))


def _read_revisions(path: str) -> list[tuple[str, str]]:
    try:
        with open(path, encoding="utf-8") as file:
            return [(each["name"], each["revision"]) for each in json.load(file)["browsers"]]
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise BuildFailed(
            f"this version of Playwright does not say which browsers it wants in {os.path.basename(path)}: "
            "pin another one"
        ) from exc
