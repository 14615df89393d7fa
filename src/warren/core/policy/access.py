"""What a caller's credentials allow, asked where something is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.errors import Forbidden

if TYPE_CHECKING:
    from warren.domain.records import Caller, Scope


def check_may(caller: Caller, scope: Scope) -> None:
    """Raise Forbidden where the caller's credentials are not good for this."""
    if not caller.principal.may(scope):
        raise Forbidden(f"this key has the scope {caller.principal.scope}, and this needs {scope}")
