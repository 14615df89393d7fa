"""`warren version`."""

from __future__ import annotations

import warren

EXAMPLES = "\b\nExample:\n  warren version"


def version() -> None:
    """Print the version."""
    print(f"warren {warren.__version__}")
