"""IPython executor: cells in InteractiveShell, with magics, `!cmd`, rich display, await. Needs IPython installed."""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys
from typing import Any

import IPython
from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.text import LSString, SList
from traitlets import Any as AnyTrait
from traitlets import Type
from traitlets.config import Config

from warren.guest.interpreter import figures, stdio
from warren.guest.interpreter.display import screen
from warren.guest.interpreter.failure import Outcome, conclude, describe, remember_source
from warren.guest.interpreter.plain_cells import PlainCells, PlainText
from warren.guest.interpreter.plain_executor import cell_name, ends_quietly, leave

_HIDDEN = (os.path.dirname(IPython.__file__) + os.sep,)
_NOTEBOOK_BACKENDS = (None, "auto", "inline", "notebook", "nbagg", "widget", "ipympl")


class IPythonExecutor:
    """One shell, made before kernels are forked, so that it costs each of them nothing."""

    name = "ipython"

    def __init__(self) -> None:
        config = Config()
        # The history would start a thread and an SQLite file.
        config.HistoryManager.enabled = False
        config.HistoryManager.hist_file = ":memory:"
        config.InteractiveShell.colors = "nocolor"
        self._shell = _Shell.the_one = _Shell.instance(config=config)
        # Kernels end by os._exit; in a script process this would run at exit and expect a terminal session.
        atexit.unregister(self._shell.atexit_operations)
        self._plain_cells = PlainCells(self._shell)
        self._shell.displayhook.plain_text = PlainText(self._shell.display_formatter)
        self._rehearse()

    def _rehearse(self) -> None:
        """Make the shell create its lazy objects, once for all kernels: 300 pages and 3 ms in each of them."""
        self._run("pass")
        self._shell.run_cell("pass", store_history=False, silent=True)
        for value in (0, 0.5, "", [0], {"": 0}, self):
            self._shell.display_formatter.format(value)
            self._shell.display_formatter.format(value, include=("text/plain",))
        self._run("0")
        self._shell.cells = 0
        self.settle()

    def settle(self) -> None:
        """Record the callbacks and transforms of the shell now: those that every kernel has."""
        self._plain_cells.settle()

    def run(self, code: str, echo: str) -> Outcome:
        """Run one cell."""
        shell = self._shell
        shell.code, shell.echo, shell.shown = code, echo, None
        error: BaseException | None
        try:
            error = self._run(code)
        except BaseException as raised:  # from a plain cell, or an interrupt inside the shell's own code
            error = raised
        finally:
            shell.code = ""
        if error is None:
            return Outcome("ok")
        return conclude(error, shell.describe_once(error))

    def _run(self, code: str) -> BaseException | None:
        parsed = self._plain_cells.parse(code)
        if parsed is not None:
            self._plain_cells.run(code, parsed)
            return None
        result = self._shell.run_cell(code, store_history=False)
        error: BaseException | None = result.error_before_exec or result.error_in_exec
        return error


class _Compiler(CachingCompiler):  # type: ignore[misc]  # IPython is not typed here
    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:  # noqa: ARG002 - IPython's
        shell = _Shell.the_one
        shell.cells += 1
        return cell_name(shell.cells)

    def name_next(self) -> str:
        """Return the name of the next cell."""
        return cell_name(_Shell.the_one.cells + 1)

    def remember(self, code: str) -> str:
        """Do what `cache` does, for a cell that runs untransformed; returns its name."""
        shell = _Shell.the_one
        shell.cells += 1
        name = cell_name(shell.cells)
        self._filename_map[name] = 0
        remember_source(name, code)
        return name


class _DisplayHook(DisplayHook):  # type: ignore[misc]
    """Gets the value of the last expression; without prompt, and without the output cache, which would hold memory."""

    _: Any
    __: Any
    plain_text: PlainText

    def __call__(self, result: object = None) -> None:
        """Show a value: numbers and strings here, everything else by IPython."""
        text = self.plain_text.of(result)
        if text is None:
            super().__call__(result)
            return
        shell = _Shell.the_one
        self.check_for_underscore()
        if ends_quietly(shell.code):
            return
        self.update_user_ns(result)
        self.fill_exec_result(result)
        if shell.echo != "none":
            self.write_format_data({"text/plain": text})

    def quiet(self) -> bool:
        return ends_quietly(self.shell.code)

    def write_output_prompt(self) -> None:
        pass

    def compute_format_data(self, result: object) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.shell.echo == "none":
            return {}, {}
        # Ten formatters for a number take longer than the rest of its cell.
        include = ("text/plain",) if self._is_plain(type(result)) else None
        data: tuple[dict[str, Any], dict[str, Any]] = self.shell.display_formatter.format(result, include=include)
        return data

    def _is_plain(self, kind: type) -> bool:
        """Whether it is a built-in type without a registered form."""
        return kind.__module__ == "builtins" and all(
            formatter.type_printers.keys().isdisjoint(kind.__mro__)
            for mime, formatter in self.shell.display_formatter.formatters.items()
            if mime != "text/plain"
        )

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        shell = _Shell.the_one
        if shell.echo == "stdout":
            print(format_dict.get("text/plain", ""))
        else:
            screen.show("result", format_dict, md_dict, is_last=shell.at_end)

    def update_user_ns(self, result: object) -> None:
        names = _Shell.the_one.user_ns
        # The program's own `_` (gettext's, a loop variable) stays.
        if names.get("_", self._) is self._:
            self._, self.__, self.___ = result, self._, self.__
            names.update({"_": self._, "__": self.__, "___": self.___})

    def log_output(self, format_dict: dict[str, Any]) -> None:
        pass

    def finish_displayhook(self) -> None:
        self._is_active = False


class _DisplayPublisher(DisplayPublisher):  # type: ignore[misc]
    def publish(self, data: dict[str, Any], metadata: dict[str, Any] | None = None, *_: object, **__: object) -> None:
        screen.show("display", data, metadata)

    def clear_output(self, wait: bool = False) -> None:
        """Do nothing: displays have been sent."""


class _Shell(InteractiveShell):  # type: ignore[misc]
    """IPython's shell without a terminal, a profile folder, history, colours or its own tracebacks."""

    displayhook_class = Type(_DisplayHook)
    display_pub_class = Type(_DisplayPublisher)
    compiler_class = Type(_Compiler)
    profile_dir = AnyTrait(None, allow_none=True)
    cells = 0
    code = ""
    echo = "none"
    the_one: Any = None
    """The instance: IPython's own lookup goes through every base class."""
    at_end = False
    """Whether the shown value is that of a cell's last expression: code may show others itself."""
    shown: BaseException | None = None

    def init_ipython_dir(self, ipython_dir: object) -> None:
        """Make none: the folder would be in the home of the zygote."""

    def init_profile_dir(self, profile_dir: object) -> None:
        """Make none, as above."""

    @property
    def db(self) -> dict[str, Any]:
        """The memory of `%cd` and `%bookmark`, for the life of the kernel."""
        remembered: dict[str, Any] = self.__dict__.setdefault("_remembered", {})
        return remembered

    @db.setter
    def db(self, value: object) -> None:
        pass

    def init_virtualenv(self) -> None:
        """Leave the module path alone."""

    def init_user_ns(self) -> None:
        super().init_user_ns()
        ours = {"exit": leave, "quit": leave}
        self.user_ns.update(ours)
        self.user_ns_hidden.update(ours)

    def init_magics(self) -> None:
        super().init_magics()
        for name in ("bash", "sh"):
            self.register_magic_function(functools.partial(_run_script, self, name), "cell", name)

    def enable_matplotlib(self, gui: str | None = None) -> Any:
        """Handle `%matplotlib inline` and its like: figures are displays already."""
        if gui not in _NOTEBOOK_BACKENDS:
            return super().enable_matplotlib(gui)
        figures.install()
        return "inline", figures.BACKEND

    async def run_code(self, code_obj: Any, result: Any = None, *, async_: bool = False) -> bool:
        """Run compiled code; its exception is kept, and shown once, by the caller that started the cell."""
        try:
            if async_:
                await eval(code_obj, self.user_global_ns, self.user_ns)  # noqa: S307 - the user's code
            else:
                exec(code_obj, self.user_global_ns, self.user_ns)
        except BaseException as error:  # whatever user code raises is an outcome
            if result is None:
                self._show(error)
            else:
                result.error_in_exec = error
            return True
        return False

    def describe_once(self, error: BaseException) -> dict[str, str] | None:
        """Describe the exception of a cell, and print it unless it was printed already. None for an exit."""
        if isinstance(error, SystemExit):
            return None
        return _describe(error) if self.shown is error else self._show(error)

    def showtraceback(self, exc_tuple: Any = None, *_: object, **__: object) -> None:
        """Show an exception that the shell caught: in a formatter, a magic, or before the cell ran."""
        error = (exc_tuple or sys.exc_info())[1]
        if isinstance(error, BaseException):
            self._show(error)

    def showsyntaxerror(self, *_: object, **__: object) -> None:
        """Show that a cell does not compile."""
        self.showtraceback()

    def showindentationerror(self) -> None:
        """Show that a cell does not compile."""
        self.showtraceback()

    def system(self, cmd: str) -> None:
        """Run `!cmd` on the cell's own descriptors."""
        # `!pip` does here what `%pip` does; IPython would warn about it, by the first word of the command.
        self.system_raw(f"command {cmd}" if cmd.startswith("pip ") else cmd)

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        """Run `x = !cmd`, without IPython's pseudo-terminal."""
        command = self.var_expand(cmd, depth=depth + 1)
        done = subprocess.run(command, shell=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # noqa: S602 - `!cmd`
        self.user_ns["_exit_code"] = done.returncode
        text = done.stdout.decode("utf-8", "replace")
        return SList(text.splitlines()) if split else LSString(text)

    def _show(self, error: BaseException) -> dict[str, str]:
        self.shown = error
        described = _describe(error)
        stdio.write_error(described["traceback"])
        return described


def _run_script(shell: _Shell, name: str, line: str, cell: str) -> None:
    """Run a `%%bash` cell on the cell's own descriptors."""
    # IPython's own starts a thread that stays, and a kernel with threads has no checkpoints.
    if line.strip():
        shell.run_cell_magic("script", f"{name} {line}", cell)
        return
    done = subprocess.run([name], input=cell.encode(), check=False)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, name)


def _describe(error: BaseException) -> dict[str, str]:
    if isinstance(error, UsageError):
        # A magic was called wrongly: frames inside IPython are of no interest.
        return {"name": "UsageError", "value": str(error), "traceback": f"UsageError: {error}\n"}
    return describe(error, hidden=_HIDDEN)
