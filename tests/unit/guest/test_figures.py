"""matplotlib figures as displays, with the real matplotlib."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

import pytest

from unit.guest.forkserver_harness import ForkserverHarness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unit.guest.forkserver_harness import Kernel

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module", params=["preloaded", "imported later", "without IPython"])
def forkserver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkserverHarness]:
    forkserver = ForkserverHarness(
        str(tmp_path_factory.mktemp("workspace")),
        without=("IPython",) if request.param == "without IPython" else (),
        preload=("matplotlib.pyplot",) if request.param == "preloaded" else (),
    )
    yield forkserver
    forkserver.close()


@pytest.fixture(scope="module")
def kernel(forkserver: ForkserverHarness) -> Kernel:
    """Return one kernel for all: importing matplotlib is what takes the time."""
    return forkserver.kernel()


def pictures(kernel: Kernel, code: str) -> list[bytes]:
    ran = kernel.run(code)
    assert ran.status == "ok", ran.stderr
    found = [display["data"].get("image/png") for display in ran.displays]
    return [base64.b64decode(picture) for picture in found if picture]


def test_an_open_figure_is_shown_at_the_end_of_the_cell(kernel: Kernel) -> None:
    [picture] = pictures(kernel, "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]);")

    assert picture.startswith(b"\x89PNG")
    assert pictures(kernel, "plt.get_fignums()") == []


def test_show_shows_now_and_only_once(kernel: Kernel) -> None:
    code = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\ndisplay('between')\nplt.plot([2])\nplt.show()"
    ran = kernel.run(code)

    assert ["image/png" in display["data"] for display in ran.displays] == [True, False, True]
    assert ran.stderr == ""


def test_a_figure_can_be_saved_as_usual(forkserver: ForkserverHarness, kernel: Kernel) -> None:
    kernel.run("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig('plot.pdf')\nplt.close()")

    with open(os.path.join(forkserver.workspace, "plot.pdf"), "rb") as file:
        assert file.read(4) == b"%PDF"


def test_a_figure_of_a_failed_cell_does_not_turn_up_in_the_next(kernel: Kernel) -> None:
    failed = kernel.run("import matplotlib.pyplot as plt\nplt.plot([1])\n1 / 0")

    assert failed.status == "error"
    assert pictures(kernel, "1") == []


def test_the_environment_may_name_another_backend(forkserver: ForkserverHarness) -> None:
    kernel = forkserver.kernel(env={**forkserver.env, "MPLBACKEND": "svg"})

    assert pictures(kernel, "import matplotlib.pyplot as plt\nplt.plot([1]);") == []
    assert kernel.run("import matplotlib; matplotlib.get_backend()").texts == ["'svg'"]


def test_a_program_that_a_cell_starts_has_no_backend_named(kernel: Kernel) -> None:
    assert kernel.run("import os; 'MPLBACKEND' in os.environ").texts == ["False"]


def test_a_script_draws_into_files(forkserver: ForkserverHarness) -> None:
    source = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig('s.png')\nprint(plt.get_backend())"
    status, output, errors = forkserver.script(source)

    assert (status, output.lower(), errors) == (0, "agg\n", "")
