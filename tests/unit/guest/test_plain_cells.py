"""Cells that IPython's machinery is spared, and those that it must not be spared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.guest.forkserver_harness import ForkserverHarness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unit.guest.forkserver_harness import Kernel


@pytest.fixture(scope="module")
def forkserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkserverHarness]:
    pytest.importorskip("IPython", reason="IPython is not installed")
    forkserver = ForkserverHarness(str(tmp_path_factory.mktemp("workspace")))
    yield forkserver
    forkserver.close()


def test_a_line_that_is_the_name_of_a_magic_is_that_magic(kernel: Kernel) -> None:
    assert kernel.run("pwd").texts == [repr(kernel.run("import os; os.getcwd()").texts[0].strip("'"))]


def test_a_variable_with_the_name_of_a_magic_is_the_variable(kernel: Kernel) -> None:
    assert kernel.run("who = 3").error is None
    assert kernel.run("who").texts == ["3"]


def test_the_last_values_are_remembered_in_either_kind_of_cell(kernel: Kernel) -> None:
    kernel.run("40")
    kernel.run("%time 1")

    assert kernel.run("_ + __").texts == ["41"]


def test_a_statement_that_does_not_compile_undoes_none_before_it(kernel: Kernel) -> None:
    ran = kernel.run("print('done')\nreturn")

    assert ran.stdout == "done\n"
    assert ran.error is not None
    assert ran.error["name"] == "SyntaxError"


def test_a_traceback_shows_the_line_of_the_cell(kernel: Kernel) -> None:
    ran = kernel.run("x = 0\n1 / x")

    assert ran.error is not None
    assert "1 / x" in ran.error["traceback"]
    assert "plain_cells" not in ran.error["traceback"]


def test_a_future_import_holds_for_later_cells(kernel: Kernel) -> None:
    kernel.run("from __future__ import annotations")

    assert kernel.run("def f(x: nowhere): pass\nf.__annotations__").texts == ["{'x': 'nowhere'}"]


def test_transformations_that_user_code_registers_are_applied(kernel: Kernel) -> None:
    kernel.run(
        "import ast\n"
        "class Double(ast.NodeTransformer):\n"
        "    def visit_Constant(self, node):\n"
        "        return ast.copy_location(ast.Constant(node.value * 2), node)\n"
        "get_ipython().ast_transformers.append(Double())"
    )

    assert kernel.run("21").texts == ["42"]


def test_all_expressions_are_shown_when_user_code_wants_that(kernel: Kernel) -> None:
    kernel.run("get_ipython().ast_node_interactivity = 'all'")

    assert kernel.run("1\n2").texts == ["1", "2"]


def test_callbacks_that_want_the_cell_get_it(kernel: Kernel) -> None:
    kernel.run("seen = []\nget_ipython().events.register('post_run_cell', lambda result: seen.append(result.result))")
    kernel.run("6 * 7")

    assert kernel.run("seen[-1]").texts == ["42"]


def test_numbers_and_strings_are_shown_as_ipython_would(kernel: Kernel) -> None:
    shown = [kernel.run(code).texts for code in ("7", "True", "0.1 + 0.2", "'a\\nb'", "print('x') or None")]

    assert shown == [["7"], ["True"], ["0.30000000000000004"], [repr("a\nb")], []]


def test_a_precision_that_was_chosen_holds_for_numbers(kernel: Kernel) -> None:
    kernel.run("%precision 3")

    assert kernel.run("1 / 3").texts == ["0.333"]


def test_a_form_registered_for_a_plain_type_is_shown(kernel: Kernel) -> None:
    kernel.run("get_ipython().display_formatter.formatters['text/html'].for_type(int, lambda n: f'<b>{n}</b>')")
    ran = kernel.run("5")

    assert ran.displays[0]["data"] == {"text/plain": "5", "text/html": "<b>5</b>"}


def test_a_way_to_print_integers_holds_for_them_and_not_for_what_prints_itself(kernel: Kernel) -> None:
    kernel.run("get_ipython().display_formatter.formatters['text/plain'].for_type(int, lambda n, p, c: p.text('n'))")

    assert [kernel.run(code).texts for code in ("5", "True")] == [["n"], ["True"]]


def test_a_number_too_long_to_write_does_not_end_the_kernel(kernel: Kernel) -> None:
    kernel.run("10 ** 6000")

    assert kernel.run("1").texts == ["1"]


def test_a_value_that_code_shows_by_itself_is_sent_at_once_and_in_order(kernel: Kernel) -> None:
    ran = kernel.run("import sys\nsys.displayhook(1)\ndisplay(2)\n3")

    assert ran.texts == ["1", "2", "3"]


def test_a_display_hook_that_code_replaced_is_the_shells_again_in_the_next_cell(kernel: Kernel) -> None:
    kernel.run("import sys; sys.displayhook = print")

    assert kernel.run("4").texts == ["4"]


def test_input_that_was_read_in_one_cell_is_new_in_the_next(kernel: Kernel) -> None:
    read = "import sys\nprint(repr(sys.stdin.read()))"

    assert [kernel.run(read, stdin=text).stdout for text in (b"a", b"b")] == ["'a'\n", "'b'\n"]
