"""The otari dialect as its contract has it: golden files, replayed, and what no file can say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api import golden

if TYPE_CHECKING:
    from api.served import Served


@pytest.mark.parametrize("name", golden.names("otari"))
def test_golden(served: Served, name: str) -> None:
    golden.replay(served, "otari", name)
