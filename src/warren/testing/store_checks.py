"""The conformance suite of the store seam: plain async functions, for our stores and third-party ones.

Run each of `CHECKS` with a `StoreSubject` whose store is open and empty; a check returns, or raises AssertionError.
pytest is not needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from warren.testing import (
    checks_store_audit,
    checks_store_callbacks,
    checks_store_egress,
    checks_store_executions,
    checks_store_files,
    checks_store_keys,
    checks_store_quotas,
    checks_store_renders,
    checks_store_sandboxes,
    checks_store_skills,
)
from warren.testing.store_subject import StoreSubject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import ModuleType

__all__ = ["CHECKS", "StoreSubject", "perform"]

CHECK_DEADLINE_S = 60.0


def _collect(*modules: ModuleType) -> tuple[Callable[[StoreSubject], Awaitable[None]], ...]:
    return tuple(value for module in modules for name, value in vars(module).items() if name.startswith("check_"))


CHECKS = _collect(
    checks_store_sandboxes,
    checks_store_quotas,
    checks_store_executions,
    checks_store_callbacks,
    checks_store_egress,
    checks_store_audit,
    checks_store_keys,
    checks_store_files,
    checks_store_renders,
    checks_store_skills,
)
"""Every check, in the order to read them."""


async def perform(check: Callable[[StoreSubject], Awaitable[None]], subject: StoreSubject) -> None:
    """Run one check under a deadline."""
    with anyio.fail_after(CHECK_DEADLINE_S):
        await check(subject)
