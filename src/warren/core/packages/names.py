"""What may be asked to be installed: names with extras and versions. Nothing that an installer would take for more."""

from __future__ import annotations

import re

from warren.domain.errors import InvalidRequest

MAX_NAMES = 100
_LONGEST = 200
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_CLAUSE = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9][A-Za-z0-9._*+!-]*"
_PYTHON = re.compile(rf"({_PART})\s*(?:\[\s*{_PART}(?:\s*,\s*{_PART})*\s*\])?\s*(?:{_CLAUSE}(?:\s*,\s*{_CLAUSE})*)?")
_NPM = re.compile(
    r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[A-Za-z0-9~][A-Za-z0-9._~-]*(?:@[A-Za-z0-9^~<>=*][A-Za-z0-9.^~<>=*+ -]*)?"
)
# WHY: installers take what ends so for a file, and look for it in the workspace.
_FILE = re.compile(r"\.(?:whl|egg|zip|tgz|tbz2?|txz|tlz|tzst|tar(?:\.[a-z0-9]+)?)$", re.IGNORECASE)
_EXAMPLES = {"python": "rich, rich==14.1.0 or httpx[http2]>=0.27", "npm": "lodash, lodash@4.17.21 or @types/node"}


def check_names(ecosystem: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names as they are passed on. Raises InvalidRequest."""
    if ecosystem not in _EXAMPLES:
        raise InvalidRequest("ecosystem must be python or npm")
    if not 1 <= len(names) <= MAX_NAMES:
        raise InvalidRequest(f"name 1 to {MAX_NAMES} packages")
    pattern = _PYTHON if ecosystem == "python" else _NPM
    found = tuple(name.strip() for name in names)
    for name in found:
        # Short before it is matched: patterns with several parts take long over what nearly fits.
        is_name = len(name) <= _LONGEST and name.isascii() and pattern.fullmatch(name) is not None
        if not is_name or _FILE.search(name.partition("[")[0].rstrip()):
            raise InvalidRequest(
                f"{name[:80]!r} is no package name: write {_EXAMPLES[ecosystem]}, and no options, addresses or paths"
            )
    return found
