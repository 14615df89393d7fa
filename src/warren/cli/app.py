"""The command line as typer reads it: all commands together, and a sentence and an exit code for every failure."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main

from warren.cli.commands.status import version as print_version
from warren.cli.errors import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED, EXIT_USAGE, LOCAL, check_platform, explain
from warren.cli.registry import Commands
from warren.domain.errors import ConfigError, Error

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    name="warren",
    help="A safe, instant place to run code that you did not write.",
    epilog="\b\nExample:\n  warren run -c 'print(1 + 1)'",
    no_args_is_help=True,
    # Registers what a shell asks; `warren completion` prints the script, so its own two options are taken out again.
    add_completion=True,
    pretty_exceptions_enable=False,
    # Plain help: drawn with rich it takes twice as long to appear.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        print_version()
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run code that you did not write, in a sandbox that starts in milliseconds."""


def build_commands() -> Any:
    """Build the root of all commands, as click has them."""
    root: Any = typer.main.get_command(app)
    root.params = [each for each in root.params if each.name not in {"install_completion", "show_completion"}]
    root.commands = Commands()
    return root


def run_app(words: list[str], asked: dict[str, Any] | None = None) -> int:
    """Run a command line and return its exit code; `asked` is what the quick commands made of it."""
    return run_explained(lambda: _call(words, asked))


def run_explained(work: Callable[[], object]) -> int:
    """Do a command's work, and say in one sentence what goes wrong."""
    try:
        code = work()
        sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _leave_broken_pipe()
    except (ConfigError, Error, OSError) as exc:
        return explain(exc)
    except Exception as exc:
        # Broad, because a usage error has no class to name: some versions of typer bring their own copy of click. Only
        # usage errors have this method; everything else is raised again.
        if not callable(getattr(exc, "format_message", None)):
            raise
        return _explain_usage(exc)
    return code if isinstance(code, int) else 0


def _call(words: list[str], asked: dict[str, Any] | None) -> object:
    if words and words[0] in LOCAL and not {"-h", "--help"}.intersection(words):
        check_platform()
    try:
        return build_commands()(args=words, prog_name="warren", standalone_mode=False, obj=asked)
    except BaseExceptionGroup as group:
        # Task groups wrap what goes wrong in them, once for each level; what went wrong first is what to tell.
        cause: BaseException = group
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        raise cause from group


def _explain_usage(exc: Any) -> int:
    context = getattr(exc, "ctx", None)
    message = " ".join(exc.format_message().split())
    path = context.command_path if context is not None else "warren"
    if type(exc).__name__ == "NoArgsIsHelpError":
        print(exc.format_message(), file=sys.stderr)
        return EXIT_USAGE
    sentence = f"{message[:1].lower()}{message[1:]}".rstrip(".")
    end = "" if sentence.endswith("?") else "."
    print(f"{path}: {sentence}{end} See {path} --help.", file=sys.stderr)
    return EXIT_USAGE


def _leave_broken_pipe() -> int:
    # The reader of our output is gone: nothing is printed, also not when Python flushes at exit.
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return EXIT_BROKEN_PIPE
