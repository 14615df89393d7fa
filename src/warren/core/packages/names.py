"""Names of packages: the canonical spelling, and which requirements a caller may install."""

from __future__ import annotations

import re

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidName, canonicalize_name

from warren.domain.errors import InvalidRequest

MAX_NAMES = 100
_LONGEST = 200
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._*+!-]*")
"""PEP 440 lets any text follow `===`, addresses and options among it."""
_NPM = re.compile(
    r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[A-Za-z0-9~][A-Za-z0-9._~-]*(?:@[A-Za-z0-9^~<>=*][A-Za-z0-9.^~<>=*+ -]*)?"
)
# WHY: installers take a name with such an ending for a file, and look for it in the workspace.
_FILE = re.compile(r"\.(?:whl|egg|zip|tgz|tbz2?|txz|tlz|tzst|tar(?:\.[a-z0-9]+)?)$", re.IGNORECASE)
_EXAMPLES = {"python": "rich, rich==14.1.0 or httpx[http2]>=0.27", "npm": "lodash, lodash@4.17.21 or @types/node"}


def normalise(name: str) -> str | None:
    """Return the canonical spelling of a Python project's name; None if it is not a valid name."""
    if len(name) > _LONGEST:
        return None
    try:
        return canonicalize_name(name, validate=True)
    except InvalidName:
        return None


def check_names(ecosystem: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the requirements as the installer gets them. Raises InvalidRequest."""
    if ecosystem not in _EXAMPLES:
        raise InvalidRequest("ecosystem must be python or npm")
    if not 1 <= len(names) <= MAX_NAMES:
        raise InvalidRequest(f"name 1 to {MAX_NAMES} packages")
    is_valid = _is_python if ecosystem == "python" else _is_npm
    found = tuple(name.strip() for name in names)
    for name in found:
        # The length first: a parser takes long over long input that is nearly valid.
        if len(name) > _LONGEST or not name.isascii() or not is_valid(name):
            raise InvalidRequest(
                f"{name[:80]!r} is no package name: write {_EXAMPLES[ecosystem]}, and no options, addresses or paths"
            )
    return found


def _is_python(name: str) -> bool:
    try:
        parsed = Requirement(name)
    except InvalidRequirement:
        return False
    is_plain = parsed.url is None and parsed.marker is None and not _FILE.search(parsed.name)
    return is_plain and all(_VERSION.fullmatch(clause.version) for clause in parsed.specifier)


def _is_npm(name: str) -> bool:
    return _NPM.fullmatch(name) is not None and not _FILE.search(name)
