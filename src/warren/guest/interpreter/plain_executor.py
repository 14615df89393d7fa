"""Plain executor: cells without IPython, with the last expression shown and top-level await."""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import linecache
import sys
import tokenize
import types
from io import StringIO
from typing import Any, NoReturn

from warren.guest.interpreter import display
from warren.guest.interpreter.failure import Outcome, conclude, remember_source

_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_KEPT_CELLS = 500
_NO_IPYTHON = "This image has no IPython: lines with ! or % are not understood. Use subprocess.run([...]) instead."


class PlainExecutor:
    """Runs cells in a module that is `__main__`, so that classes made there can be pickled."""

    name = "plain"

    def __init__(self) -> None:
        self._module = types.ModuleType("__main__")
        self._names = self._module.__dict__
        self._names.update(display=display.show, exit=leave, quit=leave, __builtins__=builtins)
        self._runner: asyncio.Runner | None = None
        self._count = 0
        sys.modules["__main__"] = self._module

    def run(self, code: str, echo: str) -> Outcome:
        """Run one cell."""
        try:
            value = self._evaluate(code)
            if value is not None and not ends_quietly(code):
                self._names["_"] = value
                self._echo(value, echo)
        except BaseException as error:  # every exception of user code is an outcome
            return conclude(error)
        return Outcome("ok")

    def settle(self) -> None:
        """Do nothing: there is no state to record."""

    def _evaluate(self, code: str) -> object:
        name = self._remember(code)
        try:
            tree = compile(code, name, "exec", flags=_FLAGS | ast.PyCF_ONLY_AST, dont_inherit=True)
        except SyntaxError as error:
            if any(line.lstrip().startswith(("!", "%")) for line in code.splitlines()):
                error.add_note(_NO_IPYTHON)
            raise
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        if tree.body:
            self._run_code(compile(tree, name, "exec", flags=_FLAGS, dont_inherit=True))
        if last is None:
            return None
        return self._run_code(compile(ast.Expression(last.value), name, "eval", flags=_FLAGS, dont_inherit=True))

    def _run_code(self, code: Any) -> object:
        value = eval(code, self._names)  # noqa: S307  # running the user's code is its purpose
        if not code.co_flags & inspect.CO_COROUTINE:
            return value
        # One loop for all cells: a task started in one goes on in the next that awaits.
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(value)

    def _echo(self, value: object, echo: str) -> None:
        if echo == "stdout":
            print(repr(value))
        elif echo == "display":
            data, metadata = display.build_bundle(value)
            display.screen.show("result", data, metadata, is_last=True)

    def _remember(self, code: str) -> str:
        """Give the cell a name under which tracebacks find its lines."""
        self._count += 1
        name = cell_name(self._count)
        remember_source(name, code)
        linecache.cache.pop(cell_name(self._count - _KEPT_CELLS), None)
        return name


def cell_name(number: int) -> str:
    """Name a cell as a file, for tracebacks."""
    return f"<cell {number}>"


def ends_quietly(code: str) -> bool:
    """Whether a cell ends with a semicolon: its value is not shown then."""
    if not code.rstrip().endswith(";") and "#" not in code:
        return False
    ignored = (tokenize.ENDMARKER, tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)
    try:
        tokens = [token for token in tokenize.generate_tokens(StringIO(code).readline) if token.type not in ignored]
    except (tokenize.TokenError, SyntaxError):
        return False
    return bool(tokens) and tokens[-1].string == ";"


def leave(code: object = None) -> NoReturn:
    """End the cell with this exit code; the kernel and its variables stay."""
    raise SystemExit(code)
