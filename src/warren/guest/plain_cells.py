"""Cells that are plain Python, run in IPython's shell without its machinery, which takes longer than they do.

Whatever the shell would treat in its own way is left to it: what is no Python as it stands, `await`, a name that is a
magic, and every cell of a user who has registered a transformation or a callback.
"""

from __future__ import annotations

import ast
import re
from typing import Any

_FIRST_NAME = re.compile(r"\s*([^\W\d]\w*)")


class PlainCells:
    """Runs plain cells of one shell. What they raise is raised here."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._transforms = self._list_transforms()

    def parse(self, code: str) -> ast.Module | None:
        """Parse a cell that can be run here; None when it is the shell's to run."""
        callbacks = self._shell.events.callbacks
        if callbacks["pre_run_cell"] or callbacks["post_run_cell"] or self._transforms != self._list_transforms():
            return None
        if "await" in code or "async" in code or self._is_magic(code):
            return None
        if self._shell.ast_node_interactivity != "last_expr":
            return None
        try:
            tree: ast.Module = self._shell.compile.ast_parse(code, "<cell>")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None
        return tree

    def run(self, code: str, tree: ast.Module) -> None:
        """Run a parsed cell and show the value of its last expression."""
        shell = self._shell
        shell.events.trigger("pre_execute")
        try:
            with shell.builtin_trap, shell.display_trap:
                self._run(tree, shell.compile.cache(code, shell.execution_count, raw_code=code))
        finally:
            shell.events.trigger("post_execute")

    def _run(self, tree: ast.Module, name: str) -> None:
        shell = self._shell
        last = tree.body[-1] if tree.body else None
        statements = tree.body[:-1] if isinstance(last, ast.Expr) else tree.body
        # One statement after the other, as the shell does: one that does not compile does not undo those before it.
        for statement in statements:
            exec(shell.compile(ast.Module([statement], []), name, "exec"), shell.user_global_ns, shell.user_ns)
        if isinstance(last, ast.Expr):
            code = shell.compile(ast.Expression(last.value), name, "eval")
            value = eval(code, shell.user_global_ns, shell.user_ns)  # noqa: S307 - the user's code
            shell.at_end = True
            try:
                shell.displayhook(value)
            finally:
                shell.at_end = False

    def _is_magic(self, code: str) -> bool:
        """Whether IPython would take a single line for the name of a magic and its arguments."""
        match = None if "\n" in code.strip() else _FIRST_NAME.match(code)
        if match is None or not self._shell.automagic:
            return False
        return match[1] in self._shell.magics_manager.magics["line"] and match[1] not in self._shell.user_ns

    def _list_transforms(self) -> list[object]:
        shell = self._shell
        manager = shell.input_transformer_manager
        groups = (manager.cleanup_transforms, manager.line_transforms, manager.token_transformers)
        return [*map(tuple, groups), tuple(shell.input_transformers_post), tuple(shell.ast_transformers)]
