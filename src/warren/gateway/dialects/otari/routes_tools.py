"""Tools of the client's own, which the code of a session may call."""

from __future__ import annotations

OPERATIONS: tuple[()] = ()
