"""`warren run`: a program in a fresh sandbox, as if it ran here."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.egress_args import Allow, EgressMode, build_egress
from warren.cli.options import AllowBare, Choice, EngineName, argument, option, time_limit, use_default_url
from warren.cli.quick.arguments import SHELL_SUFFIXES, name_inside
from warren.cli.quick.standard_streams import read_source
from warren.cli.units import parse_copy

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLES = """\b
Examples:
  warren run script.py
  warren run -c 'print(1 + 1)'
  echo 'print(2)' | warren run -
  warren run --timeout 30s --file data.csv --output results analyse.py -- --column price
  warren run --shell -c 'ls -la | wc -l'
  warren run --allow api.example.org fetch.py
  warren run --gpus 1 --memory 8G train.py
  warren run --url https://sandboxes.example.com script.py
"""


def run(
    ctx: typer.Context,
    file: Annotated[
        str | None, argument("FILE", "Program to run; - reads standard input. Files ending in .sh run in bash.")
    ] = None,
    args: Annotated[list[str] | None, argument("[-- ARGS...]", "Arguments of the program.")] = None,
    *,
    code: Annotated[str | None, option("CODE", "Source code to run, instead of a file.", "--code", "-c")] = None,
    choice: Choice,
    timeout: Annotated[float | None, time_limit("Time limit, such as 30s or 5m; none unless set.")] = None,
    egress: EgressMode = None,
    allow: Allow = None,
    files: Annotated[
        list[str] | None, option("SRC[:DEST]", "Copy a file or folder into the workspace first; repeatable.", "--file")
    ] = None,
    output: Annotated[str | None, option("DIR", "Copy the files that it creates or changes to this folder.")] = None,
    shell: Annotated[bool, typer.Option("--shell", help="Run it in bash instead of Python.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON at the end.")] = False,
    engine: EngineName = None,
    allow_bare: AllowBare = False,
    url: Annotated[
        str | None,
        option(
            "URL",
            "URL of a service to run it on; its key is in WARREN_API_KEY. Default: WARREN_URL, then this machine.",
            "--url",
            callback=use_default_url,
        ),
    ] = None,
) -> int:
    """Run a program in a fresh sandbox and exit with its exit code.

    Output appears as it is written. The sandbox is destroyed at the end, whatever happens. The exit code is the
    program's own; 124 when it ran out of time, 137 when out of memory, 128 + N when killed by signal N.
    """
    from warren.cli.execution.program import Program, perform, perform_remotely

    arguments = list(args or ())
    if code is not None and file is not None:
        arguments.insert(0, file)
        file = None
    # A program that runs once has no kernel to copy, and so needs no memory for copies.
    limits = {**choice.limits, "checkpoints": 0}
    choice = dataclasses.replace(choice, limits=limits, engine=engine, allow_bare=allow_bare)
    is_shell = shell or (file is not None and file.endswith(SHELL_SUFFIXES))
    program = Program(
        source=_read_source(file, code, ctx.obj or {}),
        name="" if is_shell else name_inside(file or ""),
        arguments=tuple(arguments),
        is_shell=is_shell,
        timeout_s=timeout,
        copies=tuple(parse_copy(text) for text in files or ()),
        output_dir=output,
        forward_stdin=file != "-",
        as_json=as_json,
    )
    way_out = build_egress(egress, allow)
    if way_out is not None and engine is not None:
        raise typer.BadParameter("--egress and --allow need a service, which --engine does without: leave one out.")
    if (url is not None or way_out is not None) and engine is None:
        return perform_remotely(program, choice, url, way_out)
    return perform(program, choice, ctx.obj)


def _read_source(file: str | None, code: str | None, asked: Mapping[str, Any]) -> str:
    """Return the program. The quick command may have read it already, from a pipe for example."""
    if code is not None:
        return code
    if file is None:
        raise typer.BadParameter("nothing to run: name a FILE, or give the program with -c, or pipe it to -.")
    try:
        source: bytes = asked["source"] if "source" in asked else read_source(file)
        return source.decode()
    except OSError as exc:
        hint = "; source code is given with -c" if isinstance(exc, FileNotFoundError) else ""
        raise typer.BadParameter(f"{file} cannot be read: {os.strerror(exc.errno or 0)}{hint}.") from exc
    except UnicodeDecodeError as exc:
        raise typer.BadParameter(f"{file} is not a text file in UTF-8.") from exc
