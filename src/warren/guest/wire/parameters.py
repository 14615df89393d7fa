"""Request parameters: a missing or mistyped one is refused with a sentence that names it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.guest.wire.frames import Header

MAX_STRINGS = 4096
MAX_STRING = 128 << 10
"""The most that Linux takes as one argument or environment variable."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Refused(Exception):
    """A request that cannot be done; `code` is one of `warren.domain.errors`, the message a sentence for the caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def invalid(message: str) -> Refused:
    """Build the refusal of a malformed request."""
    return Refused("invalid_request", message)


def get_text(header: Header, name: str, default: str | None = None, *, longest: int = 4096) -> str:
    """Return a string parameter; without a default it is required."""
    value = header.get(name, default)
    if not isinstance(value, str) or len(value) > longest:
        raise invalid(f"{name} must be a string of at most {longest} characters")
    return value


def get_number(header: Header, name: str, default: int | None = None, *, low: int = 0, high: int = 1 << 62) -> int:
    """Return a whole number between `low` and `high`; without a default it is required."""
    value = header.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise invalid(f"{name} must be a whole number between {low} and {high}")
    return value


def get_flag(header: Header, name: str, *, default: bool) -> bool:
    """Return a true or false parameter."""
    value = header.get(name, default)
    if not isinstance(value, bool):
        raise invalid(f"{name} must be true or false")
    return value


def get_choice(header: Header, name: str, among: tuple[str, ...], default: str | None = None) -> str:
    """Return one of the given words; without a default it is required."""
    value = header.get(name, default)
    if value not in among:
        raise invalid(f"{name} must be one of {', '.join(among)}")
    return str(value)


def get_name(header: Header, key: str, default: str | None = None) -> str:
    """Return a name or an id."""
    value = header.get(key, default)
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise invalid(f"{key} must be 1 to 64 letters, digits, dots, dashes or underscores")
    return value


def get_strings(header: Header, key: str) -> list[str]:
    """Return a list of strings that can be arguments of a program; empty when absent."""
    value = header.get(key, [])
    if not isinstance(value, list) or len(value) > MAX_STRINGS or not all(map(_is_argument, value)):
        raise invalid(f"{key} must be a list of at most {MAX_STRINGS} strings without NUL")
    return value


def get_env(header: Header) -> dict[str, str]:
    """Return environment variables; empty when absent."""
    value = header.get("env", {})
    if not isinstance(value, dict) or len(value) > MAX_STRINGS:
        raise invalid(f"env must be an object of at most {MAX_STRINGS} strings")
    for name, content in value.items():
        if not name or "=" in name or not _is_argument(name) or not _is_argument(content):
            raise invalid(f"env holds {name[:64]!r}, which is not a name with a string without NUL")
    return value


def get_limits(header: Header) -> dict[str, float]:
    """Return limits as plain numbers; empty when absent."""
    value = header.get("limits", {})
    if not isinstance(value, dict) or len(value) > 64:
        raise invalid("limits must be an object of numbers")
    for name, amount in value.items():
        if not isinstance(amount, int | float) or isinstance(amount, bool) or not 0 <= amount < 1 << 62:
            raise invalid(f"limits holds {name[:64]!r}, which is not a number of 0 or more")
    return value


def _is_argument(value: object) -> bool:
    if not isinstance(value, str) or "\0" in value or len(value) >= MAX_STRING:
        return False
    try:
        return len(os.fsencode(value)) < MAX_STRING
    except UnicodeEncodeError:
        return False
