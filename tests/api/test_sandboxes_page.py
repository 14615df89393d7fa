"""The calls of the Sandboxes page, as documented there, against the native API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api import golden

if TYPE_CHECKING:
    from api.served import Served


@pytest.mark.parametrize("name", golden.names("sandboxes"))
def test_golden(served: Served, name: str) -> None:
    golden.replay(served, "sandboxes", name)
