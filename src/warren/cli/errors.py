"""Failures, as one sentence and an exit code; a program's own exit code is passed on."""

from __future__ import annotations

import sys

from warren.domain.errors import ConfigError, Error

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_SERVICE = 3
EXIT_REFUSED = 4
EXIT_TIMEOUT = 124
EXIT_INTERRUPTED = 130
EXIT_KILLED = 137
EXIT_BROKEN_PIPE = 141

_EXIT_CODES = {
    "invalid_request": EXIT_USAGE,
    "service_unreachable": EXIT_NO_SERVICE,
    "unauthenticated": EXIT_REFUSED,
    "forbidden": EXIT_REFUSED,
}
"""By the code of the error, which may have come from a service; others are EXIT_FAILED."""


LOCAL = frozenset({"serve", "stop", "image", "keys", "audit", "doctor", "bench", "stop-engine"})
"""Commands about this machine, whichever service is named."""


def check_platform() -> None:
    """Raise ConfigError where this machine can have no sandboxes, and so a service has to be named."""
    if sys.platform != "linux":
        raise ConfigError(
            "sandboxes run on Linux: name a service there with --url or WARREN_URL, and its key with WARREN_API_KEY"
        )


def explain(exc: ConfigError | Error | OSError) -> int:
    """Print the sentence and return the code; where debugging is on, raise it instead."""
    if isinstance(exc, ConfigError):
        return _say(str(exc), EXIT_USAGE)
    if _is_debug():
        raise exc
    if isinstance(exc, OSError):
        return _say(str(exc) if exc.filename is None else f"{exc.filename}: {exc.strerror}", EXIT_FAILED)
    return _say(str(exc), _EXIT_CODES.get(exc.code, EXIT_FAILED))


def _say(sentence: str, code: int) -> int:
    from warren.cli.terminal.tables import harmless

    # It may quote the name of a file, or what a service said.
    print(f"warren: {harmless(sentence)}", file=sys.stderr)
    return code


def _is_debug() -> bool:
    from warren.settings import Settings

    return Settings.load().debug
