"""Patterns of texts in requests, each with what it means in words: a regular expression tells few what to write."""

from __future__ import annotations

from pydantic import StringConstraints

_WORDS: dict[str, str] = {}


def matching(pattern: str, words: str, *, max_length: int | None = None) -> StringConstraints:
    """Constrain a text to a pattern. `words` go on after "must"."""
    _WORDS[pattern] = words
    return StringConstraints(pattern=pattern, max_length=max_length)


def explain_pattern(pattern: str) -> str:
    """Say what a text that does not match must be like."""
    return f"must {_WORDS[pattern]}" if pattern in _WORDS else f"must match {pattern}"
