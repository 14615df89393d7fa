"""Guest snapshot: a copy of the guest's code under its digest, so that it never changes under a running sandbox."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile

import warren

PARTS = ("__init__.py", "guest", "render", "engines/__init__.py", "engines/local")
"""The code that zygotes and sandboxes need; they do not see the rest of Warren."""


def compute_digest() -> str:
    """Digest the code of keeper, zygotes and sandboxes: the version on which they must agree."""
    digest = hashlib.sha256()
    for path in _files():
        digest.update(path.encode() + b"\0")
        with open(os.path.join(_source(), path), "rb") as file:
            digest.update(hashlib.sha256(file.read()).digest())
    return digest.hexdigest()[:16]


def take_snapshot(folder: str) -> str:
    """Copy the code below `folder`, if it is missing; returns the folder for a module path."""
    target = os.path.join(folder, compute_digest())
    if os.path.isdir(target):
        return target
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as temporary:
        made = os.path.join(temporary, "made")
        for path in _files():
            place = os.path.join(made, "warren", path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copyfile(os.path.join(_source(), path), place)
        _make_readable(made)
        os.rename(made, target)
    return target


def _source() -> str:
    return os.path.dirname(os.path.abspath(warren.__file__))


def _files() -> list[str]:
    found = []
    for part in PARTS:
        path = os.path.join(_source(), part)
        if os.path.isdir(path):
            for folder, _folders, names in os.walk(path):
                inside = os.path.relpath(folder, _source())
                found += [os.path.join(inside, name) for name in names if name.endswith(".py")]
        else:
            found.append(part)
    return sorted(found)


def _make_readable(folder: str) -> None:
    # WHY: sandboxes have other uids, and the umask of the service may forbid them to read.
    for place, _folders, files in os.walk(folder):
        os.chmod(place, 0o755)
        for name in files:
            os.chmod(os.path.join(place, name), 0o644)
