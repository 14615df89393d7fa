"""Fonts of an image: which installed font stands in for which name, and a cache, so that programs start fast."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from warren.core.image_work import VENV_INSIDE, BuildStep, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.core.image_work import Build

_CACHE = "var/fontconfig"
_HEAD = '<?xml version="1.0"?>\n<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">\n<fontconfig>\n'


def add_fonts(build: Build) -> None:
    """Write `etc/fonts.conf` into the image, which names the cache beside it, and fill the cache."""
    fonts = build.spec.parts.fonts
    if not fonts:
        return
    build.progress(BuildStep("fonts", f"{len(fonts)} names"))
    venv = f"{build.folder}/venv"
    os.makedirs(f"{venv}/etc")
    os.makedirs(f"{venv}/{_CACHE}")
    config = f"{venv}/etc/fonts.conf"
    program = shutil.which("fc-cache")
    if build.spec.root == "host" and program is not None:
        # WHY two: fonts are cached by where they lie, which is the same inside; the cache itself lies elsewhere there.
        _write(config, build_config(fonts, f"{venv}/{_CACHE}"))
        run(build, [program, "--system-only"], env={"FONTCONFIG_FILE": config})
    _write(config, build_config(fonts, f"{VENV_INSIDE}/{_CACHE}"))


def build_config(fonts: Mapping[str, str], cache: str) -> str:
    """Build the configuration: the system's, this cache, one that can be written, and the stand-ins."""
    return "".join(
        (
            _HEAD,
            "<dir>/usr/share/fonts</dir>\n<dir>/usr/local/share/fonts</dir>\n",
            '<dir prefix="xdg">fonts</dir>\n<dir>~/.fonts</dir>\n',
            f'<cachedir>{escape(cache)}</cachedir>\n<cachedir prefix="xdg">fontconfig</cachedir>\n',
            *(_stand_in(name, installed) for name, installed in fonts.items()),
            '<include ignore_missing="yes">/etc/fonts/conf.d</include>\n',
            "</fontconfig>\n",
        )
    )


def _stand_in(name: str, installed: str) -> str:
    # WHY "same": browsers take a substitute only if it is as strongly meant as what was asked for, else their own.
    return (
        f'<alias binding="same"><family>{escape(name)}</family>'
        f"<accept><family>{escape(installed)}</family></accept></alias>\n"
    )


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
