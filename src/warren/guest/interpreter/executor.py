"""Executors: what runs a cell. IPython where the image has it, else a small executor of our own."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from warren.guest.interpreter.failure import Outcome


class Executor(Protocol):
    """Runs cells in one namespace, the kernel's `__main__`."""

    name: str

    def run(self, code: str, echo: str) -> Outcome:
        """Run one cell; `echo` says what becomes of its last expression: display, stdout or none."""

    def settle(self) -> None:
        """Record what every kernel has, before any is forked; called when all is imported and installed."""


def build_executor() -> Executor:
    """Build the best executor that this interpreter supports."""
    if importlib.util.find_spec("IPython") is not None:
        try:
            from warren.guest.interpreter.ipython_executor import IPythonExecutor  # only where the image has it

            return IPythonExecutor()
        except Exception as error:
            # An unknown version of IPython must not keep a sandbox from starting.
            sys.stderr.write(f"warren: IPython cannot be used ({error!r}); cells run without it\n")
    from warren.guest.interpreter.plain_executor import PlainExecutor  # as above

    return PlainExecutor()
