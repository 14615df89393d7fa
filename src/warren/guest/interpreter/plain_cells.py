"""Plain cells: plain Python, run in IPython's shell without its machinery, which takes longer than most cells.

The shell itself runs every cell that it treats specially: one that is not valid Python, `await`, a name that is a
magic, and every cell of a user who has registered a transformation, a callback or a display form.

Why it bypasses the shell's attributes: after a fork, every object that is touched costs the copy of its page, and a
cell run by IPython itself touches 300 pages more.
"""

from __future__ import annotations

import ast
import re
import sys
from types import CodeType
from typing import Any

from warren.guest.interpreter import figures

_FIRST_NAME = re.compile(r"\s*([^\W\d]\w*)")
_NO_EXPRESSION = re.compile(r"[\n;=]")
_THEIRS = ("IPython.", "matplotlib.")
"""Modules whose callbacks do nothing for a cell without a figure."""
_SHOWN_AS_REPR = (int, float, str, bool)


class PlainCells:
    """Runs plain cells of one shell; their exceptions pass through."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._settings = shell._trait_values  # noqa: SLF001 - see above
        self._callbacks = shell.events.callbacks
        self._magics = shell.magics_manager.magics["line"]
        self._transforms = self._list_transforms()
        self._usual_transforms = [list(group) for group in self._transforms]
        self._usual_callbacks: dict[str, list[Any]] = {}
        self._is_trapped = False

    def settle(self) -> None:
        """Record the registered callbacks: those that every kernel has. Call it when all is imported."""
        for event in ("pre_execute", "post_execute"):
            if all(getattr(callback, "__module__", "").startswith(_THEIRS) for callback in self._callbacks[event]):
                self._usual_callbacks[event] = list(self._callbacks[event])
        if self._is_trapped:
            self._is_trapped = False
            self._shell.display_trap.__exit__(None, None, None)
            self._shell.builtin_trap.__exit__(None, None, None)

    def parse(self, code: str) -> ast.Module | CodeType | None:
        """Parse a cell that can run here, or compile it if it is one expression; None for a cell of the shell."""
        callbacks = self._callbacks
        if callbacks["pre_run_cell"] or callbacks["post_run_cell"] or self._list_transforms() != self._usual_transforms:
            return None
        if "await" in code or "async" in code or self._is_magic(code):
            return None
        if self._settings.get("ast_node_interactivity", "last_expr") != "last_expr":
            return None
        compiler = self._shell.compile
        try:
            if _NO_EXPRESSION.search(code) is None:
                name = compiler.name_next()
                try:
                    # Without a tree: each kind of node is a type, and each type is on its own page.
                    expression: CodeType = compile(code, name, "eval", compiler.flags, True)
                    return expression
                except SyntaxError:
                    pass
            tree: ast.Module = compiler.ast_parse(code, "<cell>")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None
        return tree

    def run(self, code: str, parsed: ast.Module | CodeType) -> None:
        """Run a parsed cell and show the value of its last expression."""
        shell = self._shell
        self._set_traps()
        if self._is_usual("pre_execute"):
            shell.user_ns.pop("__warningregistry__", None)
        else:
            shell.events.trigger("pre_execute")
        try:
            name = shell.compile.remember(code)
            if isinstance(parsed, CodeType):
                self._show(parsed)
            else:
                self._run(parsed, name)
        finally:
            if not self._is_usual("post_execute") or figures.is_any_open():
                shell.events.trigger("post_execute")

    def _run(self, tree: ast.Module, name: str) -> None:
        shell = self._shell
        last = tree.body[-1] if tree.body else None
        statements = tree.body[:-1] if isinstance(last, ast.Expr) else tree.body
        # One statement after the other, as the shell does: a compile error does not undo those before it.
        for statement in statements:
            exec(shell.compile(ast.Module([statement], []), name, "exec"), shell.user_global_ns, shell.user_ns)
        if isinstance(last, ast.Expr):
            self._show(shell.compile(ast.Expression(last.value), name, "eval"))

    def _show(self, code: CodeType) -> None:
        shell = self._shell
        value = eval(code, shell.user_global_ns, shell.user_ns)  # noqa: S307 - the user's code
        shell.at_end = True
        try:
            shell.displayhook(value)
        finally:
            shell.at_end = False

    def _set_traps(self) -> None:
        """Install the shell's names and display hook, for good: removing them after each cell costs more."""
        shell = self._shell
        if not self._is_trapped:
            self._is_trapped = True
            shell.builtin_trap.__enter__()
            shell.display_trap.__enter__()
        sys.displayhook = shell.displayhook

    def _is_usual(self, event: str) -> bool:
        return bool(self._callbacks[event] == self._usual_callbacks.get(event))

    def _is_magic(self, code: str) -> bool:
        """Whether IPython would read a single line as a magic and its arguments."""
        match = None if "\n" in code.strip() else _FIRST_NAME.match(code)
        if match is None or not self._settings.get("automagic", True):
            return False
        return match[1] in self._magics and match[1] not in self._shell.user_ns

    def _list_transforms(self) -> list[list[object]]:
        shell = self._shell
        manager = shell.input_transformer_manager
        groups = (manager.cleanup_transforms, manager.line_transforms, manager.token_transformers)
        return [*groups, shell.input_transformers_post, self._settings.get("ast_transformers", [])]


class PlainText:
    """The text that IPython shows for a number or a string, without its ten formatters."""

    def __init__(self, formatter: Any) -> None:
        text = formatter.formatters["text/plain"]
        self._settings = text._trait_values  # noqa: SLF001 - as above
        self._printers = text.type_printers
        self._usual = {kind: self._printers.get(kind) for kind in _SHOWN_AS_REPR}
        others = [other for mime, other in formatter.formatters.items() if mime != "text/plain"]
        others += [formatter.ipython_display_formatter, formatter.mimebundle_formatter]
        self._other_forms = [other.type_printers for other in others]

    def of(self, value: object) -> str | None:
        """Return the text, or None when it is not certain."""
        kind = type(value)
        if kind not in self._usual or self._printers.get(kind) is not self._usual[kind]:
            return None
        settings = self._settings
        if not (settings.get("pprint", True) and settings.get("enabled", True)):
            return None
        if kind is float and settings.get("float_format", "%r") not in ("", "%r"):
            return None
        for forms in self._other_forms:
            if forms and not forms.keys().isdisjoint(kind.__mro__):
                return None
        try:
            return repr(value)
        except ValueError:
            return None  # A number with more digits than Python likes to write.
