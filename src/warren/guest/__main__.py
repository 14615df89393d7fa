"""`python -m warren.guest FD`: the agent as a program, for engines without a fork server. FD holds its Boot as JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import NoReturn

from warren.guest.system import callbacks


def main(argv: list[str]) -> NoReturn:
    """Read the boot facts, import the modules that the image preloads, and become the agent."""
    callbacks.settle()
    from warren.guest import agent  # these import ctypes
    from warren.guest.wire.boot import Boot  # as above

    with os.fdopen(int(argv[1]), "rb") as source:
        boot = Boot.from_json(json.load(source))
    for name in boot.preload:
        try:
            importlib.import_module(name)
        except Exception as error:
            sys.stderr.write(f"warren: {name} cannot be preloaded: {error!r}\n")
    agent.main(boot)


if __name__ == "__main__":
    main(sys.argv)
