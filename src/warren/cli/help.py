"""How help writes arguments: by the names that we gave them, to which typer would add brackets and Python's types."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class Helpful(TyperCommand):
    """A command whose help is for people."""

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
