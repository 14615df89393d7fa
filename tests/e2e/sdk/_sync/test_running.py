# Made from tests/e2e/sdk/_async/test_running.py by `make sdk`: change that instead.
from __future__ import annotations
