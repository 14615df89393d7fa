"""`warren config`: the settings that are in force, and where each came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.options import AsJson, argument, option
from warren.cli.terminal.tables import print_either, print_json, print_table

if TYPE_CHECKING:
    from warren.settings import Settings

app = typer.Typer(
    help="Show and check the settings that are in force.", invoke_without_command=True, rich_markup_mode=None
)


@app.callback(epilog="\b\nExamples:\n  warren config\n  warren config --json\n  warren config get serve.port")
def show_all(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Show and check the settings that are in force. Without a command, show them all."""
    if context.invoked_subcommand is None:
        show(given=False, as_json=as_json)


@app.command(
    "show",
    short_help="Show every setting and its source.",
    epilog="\b\nExamples:\n  warren config show\n  warren config show --given\n"
    "  warren config show --json | jq '.settings[] | select(.source != \"default\")'",
)
def show(
    *,
    given: Annotated[bool, typer.Option("--given", help="Leave out settings that have their default.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show each setting, its value and its source. Secrets are masked."""
    from warren.settings import Settings, Source

    settings = Settings.load()
    rows = [_describe(settings, name, value) for name, value in settings.values()]
    rows = [row for row in rows if not given or row["source"] != Source.DEFAULT]
    if as_json:
        print_json({"settings": rows})
        return
    print_table(None, ("setting", "value", "from"), [(row["name"], _plain(row["value"]), _place(row)) for row in rows])


@app.command(
    "get",
    short_help="Print one setting.",
    epilog="\b\nExamples:\n  warren config get data_dir\n  warren config get pool",
)
def get(
    name: Annotated[str, argument("NAME", "Name as in warren.toml: serve.port, or serve for the table.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with the source.")] = False,
) -> None:
    """Print the value of a setting, or the settings of a table, one a line. A secret is masked."""
    from warren.domain.errors import InvalidRequest
    from warren.settings import Settings
    from warren.settings.sources import not_a_setting

    settings = Settings.load()
    values = dict(settings.values())
    found = [each for each in values if each == name or each.startswith(f"{name}.")]
    if not found:
        raise InvalidRequest(not_a_setting(name, values))
    rows = [_describe(settings, each, values[each]) for each in found]
    if as_json:
        print_json(rows[0] if name in values else {"settings": rows})
    elif name in values:
        print(_plain(rows[0]["value"]))
    else:
        print("\n".join(f"{row['name']} = {_plain(row['value'])}" for row in rows))


@app.command(
    "check",
    short_help="Check the settings as the service would.",
    epilog="\b\nExamples:\n  warren config check\n  WARREN_ENV=production warren config check",
)
def check(*, as_json: AsJson = False) -> int:
    """Check whether a service would start with these settings. If not, print every reason; the exit code is 2.

    Nothing is started or changed. Flags of `warren serve` are not considered.
    """
    from warren.bootstrap.guardrails import check as check_guardrails
    from warren.cli.errors import EXIT_USAGE
    from warren.cli.service.guard import gather_facts
    from warren.settings import Settings

    settings = Settings.load()
    sentences = check_guardrails(settings, gather_facts(settings))
    told = "\n".join(sentences) or f"A service would start with these settings, in {settings.env}."
    print_either(as_json, {"env": settings.env, "starts": not sentences, "reasons": sentences}, told)
    return EXIT_USAGE if sentences else 0


@app.command(
    "import",
    short_help="Turn the configuration of another product into a warren.toml.",
    epilog="\b\nExamples:\n  warren config import .env\n  warren config import docker-compose.yml -o warren.toml",
)
def import_config(
    file: Annotated[str, argument("FILE", "An .env file, a compose file, or values of a Helm chart.")],
    *,
    output: Annotated[str | None, option("FILE", "Write the settings to this file.", "--output", "-o")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    original: Annotated[
        str | None, option("NAME", "Product, if it cannot be detected: otari, onyx, chatui, onit.", "--from")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Read the configuration of otari, Onyx's code interpreter, ChatUI's gateway or onit-sandbox.

    Prints the equivalent warren.toml, and lists the settings that have no equivalent, with the reason.
    """
    from warren.cli.commands.config_import import import_file, mask_values, render, report, save

    found = import_file(file, original)
    if output is not None:
        save(render(found, file), output, force=force)
    if as_json:
        print_json({"original": found.original.name, "settings": mask_values(found), "left": found.left})
        return
    if output is None:
        print(render(found, file), end="", flush=True)
    report(found, output)


def _describe(settings: Settings, name: str, value: Any) -> dict[str, Any]:
    from warren.settings import Source, mask
    from warren.settings.sources import find_line

    origin = settings.origin_of(name)
    row = {"name": name, "value": mask(value), "source": origin.source.value}
    if origin.where:
        row["where"] = origin.where
    if origin.source is Source.FILE and (line := find_line(origin.where, name)) is not None:
        row["line"] = line
    if origin.secret_file:
        row["secret_file"] = origin.secret_file
    return row


def _place(row: dict[str, Any]) -> str:
    where = f"{row['where']}:{row['line']}" if "line" in row else row.get("where", row["source"])
    return f"{where} ({row['secret_file']})" if "secret_file" in row else where


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
