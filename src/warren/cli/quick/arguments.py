"""Command lines in their plain form: whole names, values as the next word or after `=`.

Typer reads anything else: abbreviations, clusters of letters, options that are not listed here, mistakes. A test
compares the tables with the commands that typer builds, so that a name means the same here and there.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

ALIASES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("ls",): ("ps",),
    ("list",): ("ps",),
    ("rm",): ("sandbox", "rm"),
    ("exec",): ("sandbox", "exec"),
    ("logs",): ("sandbox", "logs"),
    ("sandbox", "ls"): ("ps",),
    ("sandbox", "list"): ("ps",),
    ("image", "ls"): ("image", "list"),
    ("image", "rm"): ("image", "remove"),
    ("keys", "ls"): ("keys", "list"),
    ("keys", "rm"): ("keys", "revoke"),
}
"""What people type who know Docker, and the command that it is here."""
SHELL_SUFFIXES = (".sh", ".bash")
"""Programs of these names run in bash."""
_SCRIPT = re.compile(r"[A-Za-z0-9_.-]{1,61}\.py")
"""Names that the agent takes for the file of a script."""
FLAG = "flag"
ONE = "one"
MANY = "many"

OPTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "run": {
        "--code": ("code", ONE),
        "-c": ("code", ONE),
        "--image": ("image", ONE),
        "-i": ("image", ONE),
        "--memory": ("memory", ONE),
        "--cpus": ("cpus", ONE),
        "--disk": ("disk", ONE),
        "--timeout": ("timeout", ONE),
        "--env": ("env", MANY),
        "-e": ("env", MANY),
        "--shell": ("shell", FLAG),
    },
    "ps": {
        "--everybody": ("everybody", FLAG),
        "-a": ("everybody", FLAG),
        "--quiet": ("quiet", FLAG),
        "-q": ("quiet", FLAG),
    },
}
"""By command and option: the parameter it sets, and whether it takes no value, one, or one each time."""


def expand(words: list[str]) -> list[str]:
    """Put the command in the place of an alias, and `--help` after the command that `help` names."""
    if words[:1] == ["help"]:
        return [*words[1:], "--help"]
    for length in (2, 1):
        command = ALIASES.get(tuple(words[:length]))
        if command is not None:
            return [*command, *words[length:]]
    return words


def name_inside(file: str) -> str:
    """Return the name that a program has in its workspace, and in its tracebacks; none for one that it cannot have."""
    name = file.rpartition("/")[2]
    return name if _SCRIPT.fullmatch(name) else ""


def parse(command: str, words: Sequence[str]) -> dict[str, Any] | None:
    """Return the parameters that were named, and the other words as `args`; None where typer has to read it."""
    known = OPTIONS[command]
    found: dict[str, Any] = {"args": []}
    rest = iter(words)
    for word in rest:
        if word == "--":
            found["args"] += rest
        elif not word.startswith("-") or word == "-":
            found["args"].append(word)
        else:
            name, equals, value = word.partition("=")
            parameter, takes = known.get(name, ("", ""))
            if not parameter or (equals and (takes == FLAG or not name.startswith("--"))):
                return None
            if takes == FLAG:
                found[parameter] = True
                continue
            if not equals and (value := next(rest, None)) is None:  # type: ignore[assignment]  # narrowed at once
                return None
            if takes == MANY:
                found.setdefault(parameter, []).append(value)
            else:
                found[parameter] = value
    return found
