from __future__ import annotations

import pytest

pytestmark = pytest.mark.anyio
