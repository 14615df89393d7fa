"""Reading how another product was configured: variables of an `.env`, a compose file, a Helm chart's values."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from warren.core.skills.yaml_text import parse_yaml
from warren.domain.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from warren.core.skills.yaml_text import Node

MAX_BYTES = 1 << 20
_LISTENED = frozenset({"8000", "8080"})
"""Ports of the originals inside their containers."""

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*[A-Z0-9]")
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^}]*)|:?\?[^}]*)?\}|\$([A-Za-z_][A-Za-z0-9_]*)")


def read_variables(path: str) -> dict[str, str]:
    """Return the variables that a file sets. Raises InvalidRequest, which names the line, and OSError."""
    with open(path, "rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise InvalidRequest(f"{path} is larger than {MAX_BYTES} bytes, as no configuration is")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequest(f"{path} is not UTF-8, as a configuration should be") from None
    try:
        found = dict(_walk(parse_yaml(text))) if _is_yaml(path, text) else dict(_read_env(text))
    except ValueError as exc:
        raise InvalidRequest(f"{path}: {exc}") from exc
    return {name: _resolve(value, found) for name, value in found.items()}


def _is_yaml(path: str, text: str) -> bool:
    if path.endswith((".yml", ".yaml")):
        return True
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and not any(_LINE.fullmatch(line) for line in lines[:1])


def _read_env(text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number}: a name, = and a value should be here")
        yield match[1], _read_value(match[2].strip(), number)


def _read_value(text: str, number: int) -> str:
    if text[:1] not in {"'", '"'}:
        return re.split(r"\s+#", text, maxsplit=1)[0].strip()
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        raise ValueError(f"line {number}: the quotes do not close") from None
    return " ".join(words)


def _walk(node: Node) -> Iterator[tuple[str, str]]:
    """Yield everything named like a variable, at any depth: a mapping of them, `NAME=value`, or name and value."""
    if isinstance(node, dict):
        name, value = node.get("name"), node.get("value")
        if isinstance(name, str) and isinstance(value, str) and _VARIABLE.fullmatch(name):
            yield name, value
            return
        for key, each in node.items():
            if isinstance(each, str) and _VARIABLE.fullmatch(key):
                yield key, each
            else:
                yield from _walk_named(key, each)
    elif isinstance(node, list):
        for item in node:
            if isinstance(item, str) and (match := _LINE.fullmatch(item)) and _VARIABLE.fullmatch(match[1]):
                yield match[1], match[2].strip()
            else:
                yield from _walk(item)


def _walk_named(key: str, node: Node) -> Iterator[tuple[str, str]]:
    """Yield variables below a key, and of onit's own file, whose keys have no names of variables, those that it has."""
    if key == "ports" and isinstance(node, list):
        yield from _read_ports(node)
        return
    if key in {"docker", "server"} and isinstance(node, dict):
        for name, value in node.items():
            if isinstance(value, str):
                yield f"{key}.{name}", value
    yield from _walk(node)


def _read_ports(node: list[Node]) -> Iterator[tuple[str, str]]:
    """Yield the published port of a compose file for each of a container's that an original listens on."""
    for each in node:
        if isinstance(each, dict):
            inside, outside = str(each.get("target", "")), str(each.get("published", ""))
        else:
            outside, _, inside = str(each).rpartition(":")
        inside = inside.partition("/")[0].strip()
        if inside in _LISTENED and outside:
            yield f"ports.{inside}", outside


def _resolve(value: str, known: Mapping[str, str]) -> str:
    """Put in what a variable of the same file is, or what stands for one that is not set; else the reference stays."""

    def replace(match: re.Match[str]) -> str:
        found = known.get(match[1] or match[3], "")
        if found and not is_unknown(found):
            return found
        return match[0] if match[2] is None else match[2]

    return _REFERENCE.sub(replace, value)


def is_unknown(value: str) -> bool:
    """Whether a value comes from elsewhere: from a variable that the file does not set."""
    return _REFERENCE.search(value) is not None
