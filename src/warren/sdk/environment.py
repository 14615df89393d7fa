"""The variables that commands and clients read without settings: the address, the key, the data folder."""

from __future__ import annotations

import os

URL = "WARREN_URL"
KEY = "WARREN_API_KEY"
DATA_DIR = "WARREN_DATA_DIR"


def default_url() -> str | None:
    """Return the address of the service, if one is set."""
    return os.environ.get(URL) or None


def default_key() -> str | None:
    """Return the key, if one is set."""
    return os.environ.get(KEY) or None


def default_data_dir() -> str:
    """Return the data folder of this user where neither a setting nor a flag names one."""
    system = "/var/lib/warren"
    parent = system if os.path.isdir(system) else os.path.dirname(system)
    # Windows has no user numbers, and no engine: the folder is named there only to say that nothing is in it.
    if hasattr(os, "geteuid") and os.geteuid() == 0 and os.access(parent, os.W_OK):
        return system
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(home, "warren")


def list_variables() -> dict[str, str]:
    """Return every `WARREN_…` but the key, by name: what settings are read from."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith("WARREN_") and name != KEY}
