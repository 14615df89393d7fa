"""The events of an execution that its agent no longer knows, made again from its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.values import Event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.domain.records import Execution


def replay(execution: Execution, after: int = 0) -> Iterator[Event]:
    """Yield stdout, stderr, each display and the result of a finished execution, as far as they come after `after`.

    Live events had other numbers. So that whoever has seen some of those misses nothing, the result always comes, under
    a number larger than any they know, and holds the whole output again.
    """
    result = execution.result
    if result is None:
        return
    seq = 0
    for kind, data in (("stdout", result.stdout), ("stderr", result.stderr)):
        if data:
            seq += 1
            if seq > after:
                yield Event(seq, kind, data)
    for display in result.displays:
        seq += 1
        if seq > after:
            yield Event(seq, "display", display=display)
    yield Event(max(seq, after) + 1, "result", result=result)
