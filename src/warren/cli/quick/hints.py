"""Which ends of a program that ended by itself get a word of advice: what to type next."""

from __future__ import annotations

_UNREACHED = (
    b"Temporary failure in name resolution",
    b"Could not resolve host",
    b"Name or service not known",
    b"Network is unreachable",
    b"EAI_AGAIN",
    b"dns error",
)
"""What programs write where nothing can be reached, each in its way."""
MISSING_MODULE = "ModuleNotFoundError"


def is_unreached(stderr: bytes) -> bool:
    """Whether a program says that it could not reach a host."""
    return any(words in stderr for words in _UNREACHED)


def needs_advice(exit_code: int, error: object, stderr: bytes) -> bool:
    """Whether the command line knows a remedy; `error` is the exception that ended the program, if one did."""
    is_missing = isinstance(error, dict) and error.get("name") == MISSING_MODULE
    return exit_code != 0 and (is_missing or is_unreached(stderr))
