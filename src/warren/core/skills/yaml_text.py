"""YAML whose every scalar is a string. Input comes from strangers: nesting is bounded, nothing is constructed."""

from __future__ import annotations

import yaml
from yaml import events

Node = str | None | list["Node"] | dict[str, "Node"]
"""A string, a null, a sequence or a mapping."""

_DEPTH = 24
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def parse_yaml(text: str) -> Node:
    """Parse one document. Raises ValueError: a sentence that begins with the number of the line.

    Aliases are refused, because a few lines of them expand to gigabytes; so are tags and duplicate keys.
    """
    # WHY events instead of yaml.load: PyYAML composes nodes recursively, in C without a check of the stack.
    builder = _Builder()
    try:
        for event in yaml.parse(text.removeprefix("\ufeff"), Loader=_LOADER):
            builder.add(event)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None) or getattr(exc, "context_mark", None)
        reason = getattr(exc, "problem", None) or getattr(exc, "reason", None) or "it is not YAML"
        raise ValueError(f"line {mark.line + 1 if mark else 1}: {reason}") from exc
    return builder.root


class _Builder:
    """Builds the tree from the events of the parser, with a stack of its own."""

    def __init__(self) -> None:
        self.root: Node = None
        self._documents = 0
        self._open: list[list[Node] | dict[str, Node]] = []
        self._keys: list[str | None] = []
        """Of each open collection, the key that waits for its value."""

    def add(self, event: events.Event) -> None:
        """Take the next event. Raises ValueError."""
        if isinstance(event, events.ScalarEvent):
            _check_tag(event)
            if self._wants_key:
                self._put_key(event, event.value)
            else:
                self._put(None if not event.style and event.value in _NULLS else event.value)
        elif isinstance(event, events.CollectionStartEvent):
            self._begin(event)
        elif isinstance(event, events.CollectionEndEvent):
            self._open.pop()
            self._keys.pop()
        elif isinstance(event, events.AliasEvent):
            raise _refused(event, f"the alias *{(event.anchor or '')[:80]} is not read: repeat the value")
        elif isinstance(event, events.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _refused(event, "a second document begins, and only one is read")

    @property
    def _wants_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1], dict) and self._keys[-1] is None

    def _begin(self, event: events.CollectionStartEvent) -> None:
        _check_tag(event)
        if len(self._open) >= _DEPTH:
            raise _refused(event, f"it is nested deeper than {_DEPTH} levels")
        if self._wants_key:
            raise _refused(event, "a key must be a string")
        collection: list[Node] | dict[str, Node] = {} if isinstance(event, events.MappingStartEvent) else []
        self._put(collection)
        self._open.append(collection)
        self._keys.append(None)

    def _put_key(self, event: events.Event, key: str) -> None:
        if key in self._open[-1]:
            raise _refused(event, f"the key {key[:80]!r} is there twice")
        self._keys[-1] = key

    def _put(self, value: Node) -> None:
        if not self._open:
            self.root = value
            return
        within, key = self._open[-1], self._keys[-1]
        if isinstance(within, list):
            within.append(value)
        elif key is not None:
            within[key], self._keys[-1] = value, None


def _check_tag(event: events.ScalarEvent | events.CollectionStartEvent) -> None:
    if event.tag is not None and event.tag != "!":
        raise _refused(event, f"the tag {event.tag[:80]} is not read: values are strings")


def _refused(event: events.Event, reason: str) -> ValueError:
    return ValueError(f"line {event.start_mark.line + 1 if event.start_mark else 1}: {reason}")
