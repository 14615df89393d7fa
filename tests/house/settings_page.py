"""Writes docs/reference/settings.md from the settings themselves: `make docs`."""

from __future__ import annotations

import sys

from warren.domain.values import MIB
from warren.settings import FILE, Entry, entries

HEAD = f"""# Settings

A setting comes from a flag of the command where there is one, else from its variable in the environment, else from
`{FILE}` in the working folder, else it has its default. A name that is not here is an error, with the nearest that is.
Sizes are bytes, or a number with K, M or G (powers of 1024). Lists are comma-separated in the environment and arrays in
TOML. What stands before a dot is a table in TOML: `limits.cpus` is `cpus` under `[limits]`. `NAME` stands for a name of
your choice. Times can be `none`, which is no limit.

A secret is shown nowhere. Its variable with `_FILE` at the end, or its name in TOML with `_file`, can name a file that
holds it: read once, without the newline at its end. `warren config` prints the settings that are in force, and where
each came from.

| setting | variable | default | |
|---|---|---|---|
"""


def render() -> str:
    """Return the page."""
    return HEAD + "".join(_row(entry) for entry in entries())


def _row(entry: Entry) -> str:
    field, leaf = entry.field, entry.name.rpartition(".")[2]
    default = "by user" if field.default_factory else _default(leaf, field.default)
    variable = f"`{entry.variable}`" if entry.variable else f"in `{FILE}` only"
    secret = f" A secret; `{entry.variable}_FILE` can name a file that holds it." if entry.is_secret else ""
    return f"| `{entry.name}` | {variable} | {default} | {field.description}{secret} |\n"


def _default(leaf: str, value: object) -> str:
    if leaf.endswith("_bytes") and isinstance(value, int) and value:
        return f"`{value >> 20}M`" if value % MIB == 0 else f"`{value >> 10}K`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "none" if value in {(), None, ""} else f"`{value}`"


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as page:
        page.write(render())
