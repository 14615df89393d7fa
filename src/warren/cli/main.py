"""The command line: puts the commands together, and turns what goes wrong into one sentence and an exit code."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

import warren
from warren.cli import (
    audit,
    bench,
    completion,
    config,
    daemon,
    doctor,
    image,
    keys,
    ps,
    run,
    sandbox,
    serve,
    shell,
    status,
    top,
)
from warren.cli.codes import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED, EXIT_USAGE
from warren.cli.failing import explain
from warren.errors import ConfigError, Error

app = typer.Typer(
    name="warren",
    help="A safe, instant place to run code that you did not write.",
    epilog="\b\nExample:\n  warren run -c 'print(1 + 1)'",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: drawn with rich it takes twice as long to appear.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", short_help="Run a program in a fresh sandbox.", epilog=run.EXAMPLES)(run.run)
app.command("shell", short_help="Open a terminal in a sandbox.", epilog=shell.EXAMPLES)(shell.shell)
app.command("ps", short_help="List the sandboxes.", epilog=ps.EXAMPLES)(ps.ps)
app.command("top", short_help="Show what sandboxes use.", epilog=top.EXAMPLES)(top.top)
app.add_typer(sandbox.app, name="sandbox", short_help="Make sandboxes that stay, and use them.")
app.command("serve", short_help="Serve sandboxes over HTTP.", epilog=serve.EXAMPLES)(serve.serve)
app.command("status", short_help="Say how the service is.", epilog=status.EXAMPLES)(status.status)
app.command("stop", short_help="Stop the service.", epilog=daemon.STOP_EXAMPLES)(daemon.stop)
app.add_typer(image.app, name="image", short_help="List, build, show and remove images.")
app.add_typer(keys.app, name="keys", short_help="Make, list and revoke API keys.")
app.add_typer(audit.app, name="audit", short_help="Check and copy the audit record.")
app.add_typer(config.app, name="config", short_help="Show and check the settings.")
app.command("doctor", short_help="Check what isolates on this host.", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("bench", short_help="Time sandboxes beside a cold Python.", epilog=bench.EXAMPLES)(bench.bench)
app.command("stop-engine", short_help="End what is kept warm.", epilog=doctor.STOP_EXAMPLES)(doctor.stop_engine)

app.command("completion", short_help="Print what completes commands.", epilog=completion.EXAMPLES)(
    completion.completion
)
app.command("_complete", hidden=True, epilog=completion.COMPLETE_EXAMPLES, context_settings=completion.RAW)(
    completion.complete
)


def _print_version(value: bool) -> None:
    if value:
        print(f"warren {warren.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Run code that you did not write, in a sandbox that starts in milliseconds."""


@app.command("version", epilog="\b\nExample:\n  warren version")
def show_version() -> None:
    """Print the version."""
    _print_version(value=True)


def main(argv: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(_main(argv))


def _main(argv: list[str] | None) -> int:
    try:
        code = _call(argv)
        sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _leave_broken_pipe()
    except (ConfigError, Error, OSError) as exc:
        return explain(exc)
    except Exception as exc:
        # Typer brings its own copy of click in some versions, so a usage error has no base class we can name.
        if not callable(getattr(exc, "format_message", None)):
            raise
        return _explain_usage(exc)
    return code if isinstance(code, int) else 0


def _call(argv: list[str] | None) -> object:
    try:
        return app(args=argv, prog_name="warren", standalone_mode=False)
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
    print(f"{path}: {sentence}. See {path} --help.", file=sys.stderr)
    return EXIT_USAGE


def _leave_broken_pipe() -> int:
    # Whoever read our output has gone; say nothing, also not when Python flushes at exit.
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return EXIT_BROKEN_PIPE
