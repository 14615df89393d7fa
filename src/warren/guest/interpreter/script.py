"""Scripts: source run as `__main__` in a fork of the warm imports; ends as Python does, with its exit status."""

from __future__ import annotations
import __future__

import atexit
import builtins
import contextlib
import functools
import json
import operator
import os
import shutil
import signal
import sys
import tempfile
import threading
import types
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from warren.guest.interpreter import child_setup, exec_start, failure, figures, stdio
from warren.guest.packages import search_path
from warren.guest.system import reseed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_FUTURE_FLAGS = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
_OUTPUT_LOST = 120
"""The exit status of Python when its output cannot be flushed."""


class Manner(NamedTuple):
    """How a script is run."""

    echo: str = ""
    """Not empty: print the value of the last expression, as the interactive interpreter would."""
    file: str = ""
    """The file for its source while it runs, made empty by the agent; empty for a temporary file."""
    label: str = ""
    """Its name in tracebacks, in place of its file."""
    figures: str = ""
    """The folder in which `plt.show()` saves figures; empty for none."""


def start(env: dict[str, str], source: bytes, argv: list[str], manner: Manner, *, is_cold: bool) -> NoReturn:
    """Run it after `child_setup.become`: as a fork of the warm imports, or by exec where those are the wrong ones."""
    if is_cold:
        memory = os.memfd_create("script")
        with open(memory, "wb", closefd=False) as file:
            file.write(source)
        kept = (memory, child_setup.CONTROL_FD)
        exec_start.restart(env, "script", str(memory), json.dumps(manner), *argv, keep_fds=kept)
    figures.uninstall(env.get("MPLBACKEND", "agg"))
    _leave_ipython()
    run(source, argv, manner)


def start_after_exec() -> NoReturn:
    """Run it after an exec; the arguments are those of `start`."""
    source_fd, manner, *argv = exec_start.take_arguments()
    os.set_inheritable(child_setup.CONTROL_FD, False)
    with open(int(source_fd), "rb") as file:
        file.seek(0)
        source = file.read()
    child_setup.settle()
    stdio.open_outputs()
    reseed.renew_surroundings(search_path.search_path(dict(os.environ)))
    run(source, argv, Manner(*json.loads(manner)))


def run(source: bytes, argv: list[str], manner: Manner) -> NoReturn:
    """Run `source` as the main program and end the process as Python would."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _apply_variables(os.environ)
    claim = _Claim()
    pid = os.getpid()
    folder, path = _save(source, manner.file)
    if manner.figures:
        figures.save_to(manner.figures)
    status, interrupted = 0, False
    try:
        _execute(source, path, argv, manner)
    except SystemExit as error:
        status = failure.exit_code(error, stdio.write_error)
        if status:
            claim.make(error)
    except BaseException as error:  # as the interpreter does
        status, interrupted = 1, isinstance(error, KeyboardInterrupt)
        _report(error)
        claim.make(error)
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001  # waits for threads, as Python does at exit
        atexit._run_exitfuncs()  # noqa: SLF001  # no public way to run them without leaving through the interpreter
    except KeyboardInterrupt as error:
        interrupted = True
        _report(error)
    if not stdio.flush():
        status = status or _OUTPUT_LOST
    # A child that the script forked may get here too.
    if folder and os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


def _apply_variables(env: Mapping[str, str]) -> None:
    """Apply variables that Python reads at its start: this interpreter started before they were set."""
    if env.get("PYTHONUNBUFFERED"):
        stdio.open_outputs(is_buffered=False)
    if env.get("PYTHONDONTWRITEBYTECODE"):
        sys.dont_write_bytecode = True


class _Claim:
    """The claim of a script which exception ended it: shared memory that the agent reads after its end."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._place = self._find_place()

    def make(self, error: BaseException) -> None:
        """Write the claim. Not in a child that the script forked, nor into a file that replaced the descriptor."""
        if self._place is None or os.getpid() != self._pid or self._find_place() != self._place:
            return
        claim = json.dumps(failure.fit_claim(failure.describe(error)))
        with contextlib.suppress(OSError):
            os.pwrite(child_setup.CONTROL_FD, claim.encode(), 0)

    def _find_place(self) -> tuple[int, int] | None:
        try:
            found = os.fstat(child_setup.CONTROL_FD)
        except OSError:
            return None
        return found.st_dev, found.st_ino


def _execute(source: bytes, path: str, argv: list[str], manner: Manner) -> None:
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    if os.path.isabs(path):
        main.__file__ = path
    sys.modules["__main__"] = main
    sys.argv = [path, *argv]
    name = manner.label or path
    if manner.label:
        failure.remember_source(name, source.decode("utf-8", "replace"))
    for code in _compile(source, name) if manner.echo else [compile(source, name, "exec", dont_inherit=True)]:
        exec(code, main.__dict__)


def _compile(source: bytes, path: str) -> list[types.CodeType]:
    """Compile a program; a last expression is shown as the interactive interpreter shows it."""
    import ast  # not above: few scripts need it

    # Not `ast.parse`, which would be a frame in the traceback of a SyntaxError.
    tree: Any = compile(source, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    if not tree.body or not isinstance(tree.body[-1], ast.Expr):
        return [compile(tree, path, "exec", dont_inherit=True)]
    last = ast.Interactive([tree.body.pop()])
    code = compile(tree, path, "exec", dont_inherit=True)
    return [code, compile(last, path, "single", code.co_flags & _FUTURE_FLAGS, dont_inherit=True)]


def _save(source: bytes, wanted: str) -> tuple[str, str]:
    """Put the source into a file: tracebacks show its lines, and multiprocessing's children import it.

    Returns the folder to remove in the end, and the path. The agent makes the `wanted` file, and removes it in the end,
    also when this process is killed.
    """
    if wanted and _fill(wanted, source):
        return "", wanted
    try:
        folder = tempfile.mkdtemp(prefix="script_")
        path = os.path.join(folder, "main.py")
        with open(path, "wb") as file:
            file.write(source)
        return folder, path
    except OSError:
        # The disk is full: the program may still run, and may free space.
        return "", "<script>"


def _fill(path: str, source: bytes) -> bool:
    try:
        file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with open(file, "wb") as out:
            out.write(source)
    except OSError:
        return False
    return True


def _report(error: BaseException) -> None:
    """Print the traceback through `sys.excepthook`, without frames of the guest."""
    start: TracebackType | None = error.__traceback__
    while start is not None and start.tb_frame.f_code.co_filename.startswith(_OURS):
        start = start.tb_next
    try:
        sys.excepthook(type(error), error.with_traceback(start), start)
    except BaseException:  # a broken hook, or an exception that fails to print
        stdio.write_error(failure.describe(error)["traceback"])


def _leave_ipython() -> None:
    """Undo the preparation of a kernel: a script is not a notebook, and libraries check."""
    shell: Any = sys.modules.get("IPython.core.interactiveshell")
    if shell is not None:
        shell.InteractiveShell.clear_instance()
    for name in ("display", "__IPYTHON__"):
        builtins.__dict__.pop(name, None)
    sys.excepthook, sys.displayhook = sys.__excepthook__, sys.__displayhook__
