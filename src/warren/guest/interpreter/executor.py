"""What runs a cell: IPython where the image has it, a small one of our own where not."""

from __future__ import annotations

import importlib.util
import sys
from typing import Protocol

from warren.guest.interpreter import stdio
from warren.guest.interpreter.failure import Outcome, describe, exit_code, fit_claim


class Executor(Protocol):
    """Runs cells in one namespace, the kernel's `__main__`."""

    name: str

    def run(self, code: str, echo: str) -> Outcome:
        """Run one cell; `echo` says what becomes of its last expression: display, stdout or none."""

    def settle(self) -> None:
        """Note how things are before any kernel is forked; called when all is imported and installed."""


def build_executor() -> Executor:
    """Make the best executor this interpreter can have."""
    if importlib.util.find_spec("IPython") is not None:
        try:
            from warren.guest.interpreter.ipython_executor import IPythonExecutor  # only where the image has it

            return IPythonExecutor()
        except Exception as error:
            # An IPython that we do not know must not keep a sandbox from starting.
            sys.stderr.write(f"warren: IPython cannot be used ({error!r}); cells run without it\n")
    from warren.guest.interpreter.plain_executor import PlainExecutor  # as above

    return PlainExecutor()


def conclude(error: BaseException, described: dict[str, str] | None = None) -> Outcome:
    """Turn what ended a cell into its outcome, and say it on standard error unless it was `described` there already."""
    if isinstance(error, SystemExit):
        return Outcome("exit", exit_code(error, stdio.write_error))
    if described is None:
        described = describe(error)
        stdio.write_error(described["traceback"])
    status = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
    return Outcome(status, 1, fit_claim(described))
