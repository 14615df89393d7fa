"""The two environment variables of a client: the service's address, and the key."""

from __future__ import annotations

import os

URL = "WARREN_URL"
KEY = "WARREN_API_KEY"


def default_url() -> str | None:
    """Return the address of the service, if one is set."""
    return os.environ.get(URL) or None


def default_key() -> str | None:
    """Return the key, if one is set."""
    return os.environ.get(KEY) or None
