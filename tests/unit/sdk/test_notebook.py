from __future__ import annotations

import pytest

from warren.sdk.results import build_result

formatters = pytest.importorskip("IPython.core.formatters")


def test_a_notebook_asks_a_result_how_it_looks() -> None:
    result = build_result(
        {
            "execution_id": "exe_1",
            "sandbox_id": "sbx_1",
            "status": "finished",
            "kind": "cell",
            "started_at": "2026-01-01T00:00:00.000+00:00",
            "cause": "exited",
            "stdout": "said\n",
            "displays": [{"data": {"image/png": "iVBORw=="}, "metadata": {}, "is_result": True}],
        }
    )

    shown, _ = formatters.DisplayFormatter().format(result)
    picture, _ = formatters.DisplayFormatter().format(result.images[0])

    assert shown["text/plain"] == "said\n"
    assert "<img src=" in shown["text/html"]
    assert "<img src=" in picture["text/html"]
