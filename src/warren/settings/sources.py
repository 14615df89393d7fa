"""Sources of values: flags, the environment, `warren.toml`, and files that hold one secret each."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from warren.domain.errors import ConfigError, suggest
from warren.domain.values import KIB
from warren.settings.entries import PREFIX, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FILE = "warren.toml"

_OURS_INSIDE = frozenset({"WARREN_SANDBOX", "WARREN_EXECUTION", "WARREN_PACKAGES"})
"""Variables of programs in sandboxes, where a Warren may run too; they are not settings."""
_CLIENTS = frozenset({"WARREN_URL", "WARREN_API_KEY"})
"""Variables of clients, which may be set in the same shell."""
_REFERENCE = "docs/reference/settings.md has all there are"
_SECRET_BYTES = 64 * KIB
_TABLE = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")


class Source(StrEnum):
    """The kind of source of a value."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a value: the variable or file, and the file of the secret, if it is in one."""

    source: Source
    where: str = ""
    secret_file: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """The values of all sources: tables as in TOML, and the origin of each by its name."""

    values: dict[str, Any]
    origins: dict[str, Origin]


def gather(entries: list[Entry], environ: Mapping[str, str], path: str, flags: Mapping[str, object]) -> Given:
    """Collect each setting from all sources. Raises ConfigError for an unknown setting, or one that is given twice."""
    values = _read_file(path)
    origins = {name: Origin(Source.FILE, path) for name in _names(values)}
    given = Given(values, origins)
    for entry in entries:
        if entry.is_secret and not entry.is_free:
            _take_file_of(given, entry.name, path)
    for entry in entries:
        if entry.variable is not None:
            _take(given, entry, environ, flags.get(entry.name), path)
    return given


def refuse_from_file(given: Given, name: str, path: str) -> None:
    """Raise ConfigError where `warren.toml` has a setting that only flags and the environment may have.

    WHY: the working folder may hold files of a sandbox, which must not loosen the isolation of the next one.
    """
    if given.origins.get(name, Origin(Source.DEFAULT)).source is Source.FILE:
        raise ConfigError(f"{path}: {name} is not taken from a file: set {PREFIX}{name.upper()}, or use its flag")


def check_variables(entries: list[Entry], environ: Mapping[str, str]) -> None:
    """Raise ConfigError for a `WARREN_…` variable that is no setting: it is a misspelt one."""
    known = {each.variable for each in entries} - {None}
    known |= {f"{each.variable}_FILE" for each in entries if each.is_secret}
    for variable in sorted(set(environ) - known - _OURS_INSIDE - _CLIENTS):
        if variable.startswith(PREFIX):
            raise ConfigError(not_a_setting(variable, filter(None, known), prefix=PREFIX))


def not_a_setting(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return the message for an unknown setting: the nearest name, or where all are listed."""
    nearest, mark, _ = suggest(name, known, prefix=prefix).partition("?")
    return f"{name} is not a setting{nearest}?" if mark else f"{name} is not a setting: {_REFERENCE}"


def read_secret(path: str, asked_by: str) -> str:
    """Return the secret of a file, without the newline that editors add. Raises ConfigError."""
    try:
        with open(path, "rb") as file:
            raw = file.read(_SECRET_BYTES + 1)
        secret = raw.decode().removesuffix("\n").removesuffix("\r")
    except OSError as exc:
        raise ConfigError(f"{asked_by} names {path}, which cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError:
        raise ConfigError(f"{asked_by} names {path}, which is not text") from None
    if not secret.strip():
        raise ConfigError(f"{asked_by} names {path}, which is empty")
    if len(raw) > _SECRET_BYTES:
        raise ConfigError(f"{asked_by} names {path}, which has more than {_SECRET_BYTES // KIB} KiB and is no secret")
    return secret


def find_line(path: str, name: str) -> int | None:
    """Return the line of `warren.toml` that has a setting, where it is unambiguous."""
    table = ""
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if header := _TABLE.match(line):
                    table = f"{_bare(header[1])}."
                elif (key := _KEY.match(line)) and table + _bare(key[1]) in {name, f"{name}_file"}:
                    return number
    except (OSError, UnicodeDecodeError):
        return None
    return None


def _take(given: Given, entry: Entry, environ: Mapping[str, str], flag: object, path: str) -> None:
    variable, file = entry.variable or "", f"{entry.variable}_FILE"
    value = environ.get(variable)
    secret_file = environ.get(file, "") if entry.is_secret else ""
    if value and secret_file:
        raise ConfigError(f"{variable} and {file} are both set: unset one of them")
    if flag is not None:
        _put(given.values, entry.name, flag, path)
        given.origins[entry.name] = Origin(Source.FLAG)
    elif secret_file:
        _put(given.values, entry.name, read_secret(secret_file, file), path)
        given.origins[entry.name] = Origin(Source.ENVIRONMENT, file, secret_file)
    elif value:
        _put(given.values, entry.name, value, path)
        given.origins[entry.name] = Origin(Source.ENVIRONMENT, variable)


def _take_file_of(given: Given, name: str, path: str) -> None:
    """Accept `secret_file = "…"` in TOML for `secret`."""
    key = f"{name}_file"
    if given.origins.pop(key, None) is None:
        return
    group, _, leaf = key.rpartition(".")
    table = given.values
    for part in group.split(".") if group else ():
        table = table[part]
    secret_file = table.pop(leaf)
    if name in given.origins:
        raise ConfigError(f"{path}: {name} and {key} are both set: remove one of them")
    if not isinstance(secret_file, str):
        raise ConfigError(f"{path}: {key} must be the path of a file")
    table[name.rpartition(".")[2]] = read_secret(secret_file, f"{path}: {key}")
    given.origins[name] = Origin(Source.FILE, path, secret_file)


def _put(values: dict[str, Any], name: str, value: object, path: str) -> None:
    *groups, leaf = name.split(".")
    table = values
    for depth, group in enumerate(groups, 1):
        table = table.setdefault(group, {})
        if not isinstance(table, dict):
            raise ConfigError(must_be_table(path, ".".join(groups[:depth])))
    table[leaf] = value


def must_be_table(path: str, name: str) -> str:
    """Return the message for a table that was given a plain value."""
    return f"{path}: {name} must be a table, as in [{name}]"


def _names(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _names(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def _bare(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


def _read_file(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} is not valid TOML: {exc}") from exc
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}") from exc
