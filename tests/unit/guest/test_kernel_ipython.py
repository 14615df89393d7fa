"""What only IPython brings: magics, commands, its display machinery. And what is said where it is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.guest.forkserver_harness import ForkserverHarness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from unit.guest.forkserver_harness import Kernel


@pytest.fixture(scope="module")
def forkserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkserverHarness]:
    pytest.importorskip("IPython", reason="IPython is not installed")
    forkserver = ForkserverHarness(str(tmp_path_factory.mktemp("workspace")))
    yield forkserver
    forkserver.close()


def test_a_command_writes_to_the_cells_own_output(kernel: Kernel) -> None:
    ran = kernel.run("word = 'hi'\nprint('before')\n!echo $word; echo oops >&2\nprint('after')\n_exit_code")

    assert (ran.stdout, ran.stderr, ran.texts) == ("before\nhi\nafter\n", "oops\n", ["0"])


def test_the_output_of_a_command_can_be_assigned(kernel: Kernel) -> None:
    assert kernel.run("lines = !printf 'a\\nb\\n'\nlist(lines)").texts == ["['a', 'b']"]


def test_magics_work_and_an_unknown_one_is_one_line(kernel: Kernel) -> None:
    cd = kernel.run("%cd -q /\n%env ANSWER=42\nimport os; os.getcwd(), os.environ['ANSWER']")
    unknown = kernel.run("%nonsense")

    assert cd.texts == ["('/', '42')"]
    assert unknown.stderr == "UsageError: Line magic function `%nonsense` not found.\n"


def test_pip_is_run_with_the_kernels_interpreter(kernel: Kernel) -> None:
    ran = kernel.run("%pip --version")

    assert "pip" in ran.stdout + ran.stderr


def test_a_formatter_that_fails_leaves_the_cell_whole(kernel: Kernel) -> None:
    ran = kernel.run(
        "class Odd:\n    def _repr_html_(self): raise ValueError('html')\n    def __repr__(self): return 'odd'\nOdd()"
    )

    assert (ran.status, ran.texts) == ("ok", ["odd"])
    assert "ValueError: html" in ran.stderr


def test_nothing_is_written_to_the_home_folder(forkserver: ForkserverHarness, tmp_path: Path) -> None:
    kernel = forkserver.kernel(env={**forkserver.env, "HOME": str(tmp_path)})
    kernel.run("%cd /\n1 / 0")

    assert list(tmp_path.iterdir()) == []


def test_event_callbacks_of_user_code_see_its_cells_only(kernel: Kernel) -> None:
    kernel.run("seen = []\nget_ipython().events.register('post_execute', lambda: seen.append(1))")
    kernel.run("pass", checkpoint=1 << 30)

    assert kernel.run("len(seen)").texts == ["2"]


def test_without_ipython_a_command_is_refused_with_the_reason(tmp_path: Path) -> None:
    forkserver = ForkserverHarness(str(tmp_path), without=("IPython",))
    try:
        ran = forkserver.kernel().run("!ls")
    finally:
        forkserver.close()

    assert ran.status == "error"
    assert "This image has no IPython" in ran.stderr


def test_a_form_registered_for_a_builtin_type_is_used(kernel: Kernel) -> None:
    kernel.run(
        "html = get_ipython().display_formatter.formatters['text/html']\nhtml.for_type(int, lambda n: f'<b>{n}</b>');"
    )

    assert kernel.run("7").displays[0]["data"] == {"text/plain": "7", "text/html": "<b>7</b>"}
    assert kernel.run("True").displays[0]["data"]["text/html"] == "<b>True</b>"


def test_a_bash_cell_streams_its_output_and_leaves_no_thread(kernel: Kernel) -> None:
    ran = kernel.run("%%bash\necho out\necho err >&2", checkpoint=1 << 30)
    failed = kernel.run("%%bash\nexit 3")

    assert (ran.stdout, ran.stderr) == ("out\n", "err\n")
    assert ran.copy is not None
    assert failed.stderr.splitlines()[-1].endswith("returned non-zero exit status 3.")
    assert "warren" not in failed.stderr


def test_the_output_of_a_bash_cell_can_be_kept(kernel: Kernel) -> None:
    assert kernel.run("%%bash --out text\necho kept").stdout == ""
    assert kernel.run("text").texts == ["'kept\\n'"]


def test_matplotlib_inline_is_what_there_is(kernel: Kernel) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    ran = kernel.run("%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1]);")

    assert (ran.status, ran.stderr) == ("ok", "")
    assert "image/png" in ran.displays[0]["data"]


def test_help_is_printed_and_does_not_wait(kernel: Kernel) -> None:
    assert "Return the number of items" in kernel.run("len?").stdout


def test_our_names_are_not_listed_as_the_users(kernel: Kernel) -> None:
    assert kernel.run("mine = 1\n%who").stdout.split() == ["mine"]
