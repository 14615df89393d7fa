"""Real nurseries with each executor, and kernels from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.guest.nest import Nest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unit.guest.nest import Kernel


@pytest.fixture(scope="module", params=["ipython", "plain"])
def nest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nest]:
    if request.param == "ipython":
        pytest.importorskip("IPython", reason="IPython is not installed")
    nest = Nest(str(tmp_path_factory.mktemp("workspace")), without=("IPython",) if request.param == "plain" else ())
    yield nest
    nest.close()


@pytest.fixture
def kernel(nest: Nest) -> Kernel:
    return nest.kernel()
