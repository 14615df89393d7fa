"""The conformance suite of the engine seam: plain async functions, for our engines and third-party ones.

Run each of `CHECKS` with a `Subject` that you build around your engine; a check returns, or raises AssertionError.
pytest is not needed. Checks do not depend on each other and leave nothing behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from warren.testing import checks_files, checks_lifecycle, checks_running, checks_scratch, checks_state
from warren.testing.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import ModuleType

__all__ = ["CHECKS", "Subject", "perform"]

CHECK_DEADLINE_S = 100.0


def _collect(*modules: ModuleType) -> tuple[Callable[[Subject], Awaitable[None]], ...]:
    return tuple(value for module in modules for name, value in vars(module).items() if name.startswith("check_"))


CHECKS = _collect(checks_lifecycle, checks_running, checks_state, checks_files, checks_scratch)
"""Every check, in the order to read them."""


async def perform(check: Callable[[Subject], Awaitable[None]], subject: Subject) -> None:
    """Run one check under a deadline, and assert that it left no sandbox behind."""
    before = await subject.listed()
    with anyio.fail_after(CHECK_DEADLINE_S):
        await check(subject)
    left = await subject.listed() - before
    assert not left, f"sandboxes left behind: {', '.join(sorted(left))}"
