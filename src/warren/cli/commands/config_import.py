"""`warren config import`: the configuration of another product, as a `warren.toml`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BeforeValidator, ValidationError

from warren.cli.imports.originals import ORIGINALS
from warren.cli.imports.sources import is_unknown, read_variables
from warren.domain.errors import Conflict, InvalidRequest
from warren.domain.values import KIB
from warren.settings import Settings
from warren.settings.root import entries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.cli.imports.rules import Original

_UNITS = (("G", 30), ("M", 20), ("K", 10))


@dataclass
class Imported:
    """What a configuration becomes here."""

    original: Original
    values: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """Of each setting its value, and the name that it came from."""
    left: dict[str, str] = field(default_factory=dict)
    """Names that went nowhere, and why."""


def import_file(path: str, original: str | None = None) -> Imported:
    """Read a configuration. Raises InvalidRequest where its product is unknown, and OSError."""
    variables = read_variables(path)
    chosen = _choose(path, variables, original)
    found = Imported(chosen)
    for name, text in variables.items():
        _take(found, name, text, variables)
    _drop_invalid(found)
    return found


def render(found: Imported, path: str) -> str:
    """Write the settings as TOML, each with the name that it came from."""
    known = list(entries())
    order = {entry.name: number for number, entry in enumerate(known)}
    sizes = {entry.name for entry in known if any(isinstance(each, BeforeValidator) for each in entry.field.metadata)}
    lines = [f"# What {os.path.basename(path)} of {found.original.title} means here."]
    table = ""
    for name in sorted(found.values, key=lambda each: (each.count(".") > 0, order.get(each, 0))):
        value, origin = found.values[name]
        head, _, last = name.rpartition(".")
        if head != table:
            table = head
            lines += ["", f"[{table}]"]
        lines.append(f"{last} = {_write(value, is_size=name in sizes)}  # {origin}")
    return "\n".join(lines) + "\n"


def mask_values(found: Imported) -> dict[str, dict[str, Any]]:
    """Return the settings with where they came from, and nothing of a secret."""
    secrets = {entry.name for entry in entries() if entry.is_secret}
    return {
        name: {"value": "********" if name in secrets else value, "from": origin}
        for name, (value, origin) in found.values.items()
    }


def save(text: str, path: str, *, force: bool) -> None:
    """Write a file that only its owner reads: it may hold a secret. Raises Conflict where there is one."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        file = os.open(path, flags, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} exists already: name another file, or add --force") from None
    with open(file, "w", encoding="utf-8") as opened:
        opened.write(text)


def report(found: Imported, target: str | None) -> None:
    """Say what was taken and what was not, on standard error where the settings themselves are printed."""
    out = sys.stderr if target is None else sys.stdout
    many = len(found.values)
    where = f"in {target}" if target else "above"
    print(f"This is {found.original.title}. {many} {'setting is' if many == 1 else 'settings are'} {where}.", file=out)
    if found.left:
        print("\nWithout an equivalent:", file=out)
        width = max(map(len, found.left))
        for name, why in found.left.items():
            print(f"  {name:{width}}  {why}", file=out)
    print(f"\n{found.original.note}", file=out)


def _choose(path: str, variables: Mapping[str, str], wanted: str | None) -> Original:
    if wanted is not None:
        for original in ORIGINALS:
            if original.name == wanted:
                return original
        names = ", ".join(original.name for original in ORIGINALS)
        raise InvalidRequest(f"there is no configuration of {wanted!r} that can be read: choose one of {names}")
    scores = {original.name: sum(_weigh(name, original) for name in variables) for original in ORIGINALS}
    best = max(ORIGINALS, key=lambda original: scores[original.name])
    if list(scores.values()).count(scores[best.name]) > 1:
        raise InvalidRequest(
            f"{path} does not show which product it belongs to: add --from {' or '.join(scores)}, or see "
            "docs/howto/import-a-configuration.md"
        )
    return best


def _weigh(name: str, original: Original) -> int:
    """Count a name that only one product has for more than all that several have."""
    if name not in original.rules:
        return 0
    return 100 if sum(name in each.rules for each in ORIGINALS) == 1 else 1


def _take(found: Imported, name: str, text: str, variables: Mapping[str, str]) -> None:
    rule = found.original.rules.get(name)
    if not text.strip() or (rule is not None and (rule.is_part or text.strip().lower() in rule.fine)):
        return
    if rule is None or not rule.setting:
        found.left[name] = f"{found.original.title} has no such setting" if rule is None else rule.why
    elif is_unknown(text):
        found.left[name] = "its value comes from a variable that this file does not set"
    else:
        try:
            found.values[rule.setting] = (rule.convert(text.strip(), variables), name)
        except ValueError as exc:
            found.left[name] = f"its value cannot be read: {exc}"
            return
        found.values |= {setting: (value, f"{name}, too") for setting, value in rule.also.items()}


def _drop_invalid(found: Imported) -> None:
    """Leave out values that have no meaning here, and say why."""
    while True:
        try:
            Settings.model_validate(_nest(found.values)).limits.build()
        except ValidationError as exc:
            error = exc.errors(include_input=False)[0]
            wrong = ".".join(str(part) for part in error["loc"])
            why = error["msg"].removeprefix("Value error, ")
        except InvalidRequest as exc:
            limits = [name for name in found.values if name.startswith("limits.")]
            wrong = next((name for name in limits if name[7:] in str(exc)), limits[0])
            why = str(exc)
        else:
            return
        name = next(each for each in found.values if wrong == each or wrong.startswith(f"{each}."))
        found.left[found.values.pop(name)[1]] = f"{name} cannot have that value: {why[0].lower()}{why[1:]}"


def _nest(values: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, (value, _) in values.items():
        *tables, last = name.split(".")
        table = nested
        for each in tables:
            table = table.setdefault(each, {})
        table[last] = value
    return nested


def _write(value: Any, *, is_size: bool) -> str:
    if is_size and type(value) is int and value >= KIB:
        for unit, shift in _UNITS:
            if value % (1 << shift) == 0:
                return f'"{value >> shift}{unit}"'
    # Of these, JSON is written as TOML is; what JSON leaves as it is, TOML takes too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
