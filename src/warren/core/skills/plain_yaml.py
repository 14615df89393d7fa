"""The part of YAML that people write by hand: mappings, lists and texts. Every value is text, and nothing is executed.

What it does not know, anchors and tags for example, it refuses by its line and does not guess at.
"""

from __future__ import annotations

import json
import re

Node = str | None | list["Node"] | dict[str, "Node"]
"""A text, nothing, a list or a mapping."""

_DEPTH = 24
# WHY possessive: a line comes from a stranger and may be long, and none may be gone through again and again.
_TEXT = r"""("[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^']*+(?:''[^']*+)*+'"""
_KEY = re.compile(_TEXT + r"""|[^\s"'#&*!|>%@`{}\[\],?-][^:]*+|[?-][^\s:][^:]*+)\s*+:(?:\s++(.*))?""")
_BLOCK = re.compile(r"([|>])([+-]?)\s*+(?:#.*)?")
_COMMENT = re.compile(r"(?<!\s)\s++#.*")
_QUOTED = re.compile(_TEXT + r")\s*+(?:#.*)?")
_ITEM = re.compile(r"\s*+" + _TEXT + r"""|[^,"'\[\]{}]*+)\s*+(?:,|$)""")
_UNKNOWN = {
    "&": "an anchor",
    "*": "an alias",
    "!": "a tag",
    "{": "a mapping in braces",
    "%": "a directive",
    "@": "a mark without a meaning",
    "`": "a mark without a meaning",
}


def parse_yaml(text: str) -> Node:
    """Read one document. Raises ValueError: a sentence with the number of the line."""
    reader = _Reader(text.removeprefix("\ufeff").splitlines())
    found = reader.read(0)
    reader.check_end()
    return found


class _Reader:
    """Goes through the lines once, from the top."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 1 if lines and lines[0].rstrip() == "---" else 0
        self._depth = 0

    def check_end(self) -> None:
        if self._next() is not None:
            raise self._wrong("it is indented otherwise than what is above it")

    def read(self, least: int) -> Node:
        """Read what begins at the next line, if that is indented so far at least."""
        line = self._next()
        if line is None or line[0] < least:
            return None
        self._depth += 1
        if self._depth > _DEPTH:
            raise self._wrong(f"it is nested deeper than {_DEPTH} levels")
        indent, text = line
        found: Node
        if _is_item(text):
            found = self._read_list(indent)
        elif _KEY.fullmatch(text):
            found = self._read_mapping(indent)
        else:
            self._at += 1
            found = self._read_value(text, indent)
        self._depth -= 1
        return found

    def _read_list(self, indent: int) -> list[Node]:
        items: list[Node] = []
        while (line := self._next()) is not None and line[0] == indent and _is_item(line[1]):
            rest = line[1][1:].lstrip()
            if not rest or rest.startswith("#"):
                self._at += 1
                items.append(self.read(indent + 1))
            elif _is_item(rest) or (_KEY.fullmatch(rest) and not _QUOTED.fullmatch(rest)):
                # What follows the dash begins there, as if on a line of its own.
                self._lines[self._at] = " " * (indent + len(line[1]) - len(rest)) + rest
                items.append(self.read(indent + 1))
            else:
                self._at += 1
                items.append(self._read_value(rest, indent))
        return items

    def _read_mapping(self, indent: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        while (line := self._next()) is not None and line[0] == indent and not _is_item(line[1]):
            match = _KEY.fullmatch(line[1])
            if match is None:
                raise self._wrong("a name and a colon should be here")
            key = self._read_text(match[1].rstrip())
            if key in found:
                raise self._wrong(f"{key[:80]!r} is there twice")
            self._at += 1
            rest = (match[2] or "").strip()
            if rest and not rest.startswith("#"):
                found[key] = self._read_value(rest, indent)
            else:
                below = self._next()
                # A list may stand as far left as the name it belongs to.
                is_list = below is not None and below[0] == indent and _is_item(below[1])
                found[key] = self._read_list(indent) if is_list else self.read(indent + 1)
        return found

    def _read_value(self, text: str, indent: int) -> Node:
        """Read a value that begins on the line before the next, of something that is indented so far."""
        block = _BLOCK.fullmatch(text)
        if block is not None:
            return self._read_block(indent, is_folded=block[1] == ">", keep_end=block[2] != "-")
        if text.startswith("["):
            return self._read_flow(text)
        if text[0] in "\"'":
            return self._read_text(text)
        if text[0] in _UNKNOWN:
            raise self._wrong(f"it begins with {_UNKNOWN[text[0]]}, which is not read here", back=1)
        parts = [_COMMENT.sub("", text)]
        while (line := self._next()) is not None and line[0] > indent:
            parts.append(_COMMENT.sub("", line[1]))
            self._at += 1
        return None if parts in (["~"], ["null"]) else " ".join(parts)

    def _read_flow(self, text: str) -> list[Node]:
        """Read `[a, b]` of texts, on one line."""
        body = _COMMENT.sub("", text).strip()
        if not body.endswith("]"):
            raise self._wrong("a list in brackets must end on its line", back=1)
        inner = body[1:-1].strip()
        found: list[Node] = []
        at = 0
        while at < len(inner):
            item = _ITEM.match(inner, at)
            if item is None:
                raise self._wrong("a list in brackets can only have texts in it here", back=1)
            at = item.end()
            if item[1].strip():
                found.append(self._read_text(item[1].strip()))
        return found

    def _read_text(self, text: str) -> str:
        quoted = _QUOTED.fullmatch(text)
        if quoted is None and text[:1] in {'"', "'"}:
            raise self._wrong("a quoted text must end on its line, and nothing may follow it", back=1)
        if quoted is None:
            return text
        if text[0] == "'":
            return quoted[1][1:-1].replace("''", "'")
        try:
            found = json.loads(quoted[1], strict=False)
        except ValueError:
            raise self._wrong("it has a \\ with something behind it that is not read here", back=1) from None
        return str(found)

    def _read_block(self, indent: int, *, is_folded: bool, keep_end: bool) -> str:
        lines: list[str] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            lines.append(line)
            self._at += 1
        margin = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
        text = "\n".join(line[margin:] for line in lines).rstrip()
        if is_folded:
            text = re.sub(r"(?<!\n)\n(?![\n ])", " ", text)
            text = re.sub(r"\n(\n+)", r"\1", text)
        return text + "\n" if keep_end and text else text

    def _next(self) -> tuple[int, str] | None:
        """Return the indent and the text of the next line that says something."""
        while self._at < len(self._lines):
            line = self._lines[self._at].rstrip()
            text = line.lstrip(" ")
            if text.startswith("\t"):
                raise self._wrong("it is indented with a tab: use spaces")
            if text == "---" and len(text) == len(line):
                raise self._wrong("another document begins: only one is read here")
            if text and not text.startswith("#"):
                return len(line) - len(text), text
            self._at += 1
        return None

    def _wrong(self, why: str, *, back: int = 0) -> ValueError:
        return ValueError(f"line {self._at + 1 - back}: {why}")


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")
