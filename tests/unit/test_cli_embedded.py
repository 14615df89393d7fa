"""What a command says of its embedded engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.cli.options import Choice
from warren.cli.service import embedded
from warren.engines.local.engine import LocalEngine

if TYPE_CHECKING:
    from pathlib import Path


def test_a_limit_that_nothing_holds_is_said_to_be_none(tmp_path: Path) -> None:
    # Not open, and so with no layer in force.
    engine = LocalEngine(str(tmp_path))
    said = embedded._list_limits_not_in_force(engine, Choice(limits={"memory_bytes": 1 << 30, "checkpoints": 0}))

    assert said == ["warren: --memory is not in force: WARREN_OPTIONAL_LAYERS gives up memory"]
