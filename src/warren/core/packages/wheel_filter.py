"""Wheel filter: pages of an index for one Python, without the wheels that it can never install.

In a large project those are nineteen of twenty wheels, and reading them takes a tenth of the time of an installation.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from packaging import tags

from warren.core.packages.python import find_version

if TYPE_CHECKING:
    from warren.core.packages.python import File

_NAME = re.compile(r"cp3(\d{1,2})-(x86_64|aarch64|armv7l|i686|ppc64le|riscv64|s390x)")
_LINUX = ("linux", "manylinux", "musllinux")
_COMPRESSED = 16
"""Dots in a tag. A few dozen of them expand to tens of thousands of tags; such a wheel is kept unread."""


@dataclass(frozen=True, slots=True)
class Target:
    """A CPython on Linux: its minor version, and its machine."""

    minor: int
    machine: str

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parse `cp311-x86_64`; None for anything else."""
        found = _NAME.fullmatch(name)
        return cls(int(found[1]), found[2]) if found else None

    def keep(self, project: str, files: list[File]) -> list[File]:
        """Return the files that may fit, and all files of a version without any: installers name what there is."""
        fitting = {file["name"] for file in files if self.fits(file["name"])}
        served = {find_version(name, project) for name in fitting}
        return [file for file in files if file["name"] in fitting or find_version(file["name"], project) not in served]

    def fits(self, filename: str) -> bool:
        """Whether the target may be able to install a file. Only the name of a wheel can rule that out."""
        stem = filename.removesuffix(".whl")
        before, *found = stem.rsplit("-", 3)
        if stem == filename or len(found) < 3 or "-" not in before:
            return True
        return _fits(self, stem[len(before) + 1 :])


# A page has thousands of wheels and some hundred distinct tags: each tag is expanded once.
@functools.lru_cache(maxsize=8192)
def _fits(target: Target, tag: str) -> bool:
    if tag.count(".") > _COMPRESSED:
        return True
    try:
        found = tags.parse_tag(tag)
    except ValueError:
        return True
    supported = _build_supported(target.minor)
    return any(
        (each.interpreter, each.abi, "linux" if _is_for(each.platform, target.machine) else each.platform) in supported
        for each in found
    )


def _is_for(platform: str, machine: str) -> bool:
    return platform.startswith(_LINUX) and platform.endswith(f"_{machine}")


@functools.cache
def _build_supported(minor: int) -> frozenset[tuple[str, str, str]]:
    """Return interpreter, ABI and platform of installable wheels; `linux` is every Linux of the machine."""
    version, name = (3, minor), f"cp3{minor}"
    found = list(tags.compatible_tags(version, name, ["linux"]))
    # A target does not say whether its Python has the GIL or is a debug build.
    for abi in (name, f"{name}t", f"{name}d"):
        found += tags.cpython_tags(version, [abi], ["linux"])
    return frozenset((each.interpreter, each.abi, each.platform) for each in found)
