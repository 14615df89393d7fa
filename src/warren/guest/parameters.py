"""Reading a request's parameters: a missing or mistyped one is refused with a sentence that names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.guest.wire import Header


class Refused(Exception):
    """A request that cannot be done; `code` is one of `warren.errors`, the message a sentence for the caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> Refused:
    """Build the refusal of a request that makes no sense as it stands."""
    return Refused("invalid_request", message)


def text(header: Header, name: str, default: str | None = None, *, longest: int = 4096) -> str:
    """Return a string parameter; without a default it is required."""
    value = header.get(name, default)
    if not isinstance(value, str) or len(value) > longest:
        raise invalid(f"{name} must be a string of at most {longest} characters")
    return value


def number(header: Header, name: str, default: int | None = None, *, low: int = 0, high: int = 1 << 62) -> int:
    """Return a whole number between `low` and `high`; without a default it is required."""
    value = header.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise invalid(f"{name} must be a whole number between {low} and {high}")
    return value


def flag(header: Header, name: str, *, default: bool) -> bool:
    """Return a true or false parameter."""
    value = header.get(name, default)
    if not isinstance(value, bool):
        raise invalid(f"{name} must be true or false")
    return value


def choice(header: Header, name: str, among: tuple[str, ...], default: str | None = None) -> str:
    """Return one of a few words; without a default it is required."""
    value = header.get(name, default)
    if value not in among:
        raise invalid(f"{name} must be one of {', '.join(among)}")
    return str(value)
