"""What makes a dialect: its operations, how it reads a request, and how it says what went wrong.

A dialect is a folder of three files over the same use cases: `routes.py` (parse, one use case, render), `schemas.py`
(the foreign words) and `translate.py` (pure). Where its programs behave differently it passes a value to the use case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel
    from starlette.responses import Response

    from warren.gateway.operations import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One API flavour, as a value."""

    name: str
    """In the settings, in the audit record and in `/docs/<name>`."""
    title: str
    about: str
    """What its page says first."""
    operations: tuple[Operation, ...]
    """Their paths begin at the root."""
    parse_body: Callable[[type[BaseModel], bytes], BaseModel]
    """Reads JSON, and raises what `respond` can say."""
    parse_query: Callable[[type[BaseModel], bytes], BaseModel]
    respond: Callable[[BaseException, str], Response]
    """Builds the answer to a request that ended in an exception; the request's id is the second argument."""
