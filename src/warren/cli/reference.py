"""Writes docs/reference/cli.md and the page of `warren --help` from the commands: `python -m warren.cli.reference`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from warren.cli.app import build_commands
from warren.cli.main import HELP_PAGE
from warren.cli.quick.arguments import ALIASES
from warren.cli.registry import name_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = """# The command line

Generated from the commands by `python -m warren.cli.reference > docs/reference/cli.md`; a test keeps it current.

Commands print tables, on a terminal and in a pipe alike; `--json` prints JSON. Errors are one sentence on standard
error; `WARREN_DEBUG=true` adds the traceback.

| exit code | |
|---|---|
| 0 | success |
| 1 | failure |
| 2 | the command, a setting or the request is invalid |
| 3 | no service runs here, or none answers at the address |
| 4 | the service refuses: the key is missing, invalid, or does not allow this |
| 124 | the program ran out of time |
| 130 | it was interrupted |
| 137 | it ran out of memory |
| 128 + N | signal N killed it |

`warren run`, `warren shell` and `warren sandbox exec` exit with the program's own exit code.

`warren ps`, `top`, `sandbox`, `shell --sandbox` and `status` use the service that `--url` or `WARREN_URL` names, with
the key in `WARREN_API_KEY`; else the service of this machine, over `warren.sock` in its data folder, without a key, as
the principal `local`; and if none runs, a service inside the command. `warren ps` then only reads the store, unless a
sandbox has died and its record has to be corrected. `warren run` uses a service only if one is named.

The first command starts the engine's keeper and, for each image, a process with its modules imported. They keep
running, so that the next sandbox is made in milliseconds; `warren stop-engine` ends them.
"""


def render() -> str:
    """Build the page."""
    rows = [f"| `warren {' '.join(alias)}` | `warren {' '.join(command)}` |" for alias, command in ALIASES.items()]
    aliases = "\n".join(rows)
    head = f"{_HEAD}\n| alias | command |\n|---|---|\n{aliases}\n"
    return "\n".join([head, *_sections("warren", build_commands())]).rstrip() + "\n"


def _sections(path: str, command: Any) -> Iterator[str]:
    children = getattr(command, "commands", {})
    for name, child in children.items():
        if child.hidden:
            continue
        if getattr(child, "commands", None):
            yield from _sections(f"{path} {name}", child)
        else:
            yield from _section(f"{path} {name}", child)


def _section(path: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    usage = " ".join([path, "[OPTIONS]" if options else "", *(name_argument(p) for p in arguments)])
    yield f"## {path}\n"
    yield f"`{' '.join(usage.split())}`\n"
    yield _paragraphs(command.help)
    rows = [(f"`{name_argument(p)}`", p.help) for p in arguments] + [(_option(p), p.help) for p in options]
    if rows:
        yield "| | |\n|---|---|"
        yield "\n".join(f"| {name} | {what} |" for name, what in rows) + "\n"
    yield "```\n" + "\n".join(_examples(command.epilog)) + "\n```\n"


def _option(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} `{parameter.metavar or parameter.name.upper()}`"


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")) + "\n"


def _examples(epilog: str) -> list[str]:
    return [line.strip() for line in epilog.splitlines() if line.startswith("  ")]


def render_help() -> str:
    """Build the page of `warren --help`, as click writes it for a window of 80 columns."""
    root = build_commands()
    return f"{root.get_help(root.make_context('warren', [], resilient_parsing=True, terminal_width=80))}\n"


if __name__ == "__main__":
    with open(HELP_PAGE, "w", encoding="utf-8") as page:
        page.write(render_help())
    sys.stdout.write(render())
