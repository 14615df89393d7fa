"""Fonts of an image: substitutes for fonts that are not installed, and a cache for fast program starts."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from warren.core.images.progress import VENV_INSIDE, BuildStep, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.core.images.progress import Build

_CACHE = "var/fontconfig"
_HEAD = '<?xml version="1.0"?>\n<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">\n<fontconfig>\n'


def add_fonts(build: Build) -> None:
    """Write `etc/fonts.conf` into the image, with the cache beside it, and fill the cache."""
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
