"""Every command, by name; only those that are asked for are imported and built: a program waits for `warren run`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand

from warren.cli.options import expand_options


class Helpful(TyperCommand):
    """A command whose help names arguments as we do; typer would add brackets and Python's types."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Write what follows the command's name."""
        return ["[OPTIONS]", *(name_argument(each) for each in _params(self, ctx, "argument"))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write what each argument and each option is for."""
        arguments = [(name_argument(each), each.help or "") for each in _params(self, ctx, "argument")]
        records = [each.get_help_record(ctx) for each in _params(self, ctx, "option")]
        for title, rows in (("Arguments", arguments), ("Options", [row for row in records if row is not None])):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def name_argument(parameter: Any) -> str:
    """Write an argument as a line of usage does."""
    name: str = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _params(command: Any, ctx: Any, kind: str) -> list[Any]:
    return [each for each in command.get_params(ctx) if each.param_type_name == kind]


class Command(NamedTuple):
    """Where a command, or a group of them, is written down."""

    module: str
    name: str
    help: str
    """In the list of commands."""
    examples: str = ""
    """The name of its examples; a group's are at its commands."""


COMMANDS = {
    "run": Command("run", "run", "Run a program in a fresh sandbox.", "EXAMPLES"),
    "shell": Command("shell", "shell", "Open a terminal in a sandbox.", "EXAMPLES"),
    "ps": Command("ps", "ps", "List the sandboxes.", "EXAMPLES"),
    "top": Command("top", "top", "Show resource use of sandboxes.", "EXAMPLES"),
    "sandbox": Command("sandbox", "app", "Make sandboxes that stay, and use them."),
    "render": Command("render", "render", "Convert an HTML page to PowerPoint.", "EXAMPLES"),
    "egress": Command("egress", "app", "Show and change the egress of a sandbox."),
    "secret": Command("secret", "app", "Secrets that a sandbox uses but never sees."),
    "serve": Command("serve", "serve", "Serve sandboxes over HTTP.", "EXAMPLES"),
    "mcp": Command("mcp", "mcp", "Serve tools for a model over MCP.", "EXAMPLES"),
    "status": Command("status", "status", "Show the state of the service.", "EXAMPLES"),
    "stop": Command("stop", "stop", "Stop the service.", "EXAMPLES"),
    "image": Command("image", "app", "List, build, show and remove images."),
    "keys": Command("keys", "app", "Make, list and revoke API keys."),
    "audit": Command("audit", "app", "Check and copy the audit record."),
    "config": Command("config", "app", "Show and check the settings."),
    "doctor": Command("doctor", "doctor", "Check the isolation of this host.", "EXAMPLES"),
    "bench": Command("bench", "bench", "Time sandboxes beside a cold Python.", "EXAMPLES"),
    "stop-engine": Command("doctor", "stop_engine", "End the warm engine processes.", "STOP_EXAMPLES"),
    "completion": Command("completion", "completion", "Print a shell completion script.", "EXAMPLES"),
    "version": Command("status", "version", "Print the version.", "VERSION_EXAMPLES"),
}


class Commands(Mapping[str, Any]):
    """The commands as click has them, each built when it is first asked for."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = _build(name, COMMANDS[name])
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _build(name: str, command: Command) -> Any:
    module = import_module(f"warren.cli.commands.{command.module}")
    found = getattr(module, command.name)
    # With a callback it is a group, from which the one command can be taken.
    group = typer.Typer(rich_markup_mode=None, add_completion=False, callback=lambda: None)
    if isinstance(found, typer.Typer):
        for each in found.registered_commands:
            each.cls, each.callback = Helpful, expand_options(each.callback)  # type: ignore[arg-type]  # all have one
        group.add_typer(found, name=name, short_help=command.help)
    else:
        group.command(name, cls=Helpful, short_help=command.help, epilog=getattr(module, command.examples))(
            expand_options(found)
        )
    built: Any = typer.main.get_command(group)
    return built.commands[name]
