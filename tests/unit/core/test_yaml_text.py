"""YAML as strings: what people write is read, what could harm is refused by its line."""

from __future__ import annotations

import contextlib
import time

import pytest

from warren.core.skills.yaml_text import parse_yaml

LONG = 200_000

COMPOSE = """
# a comment
services:
  sandbox:
    image: "acme/sandbox:latest"   # another
    ports: ["8000:8000", '9000:9000']
    environment:
      - SESSION_TTL_SECONDS=900
      - "QUOTED=a b"
    command: >-
      run this
      and that

      then more
    notes: |
      one
        two
    empty:
    nothing: ~
    long: goes on
      over lines
  other:
    volumes:
    - data:/data
    - type: bind
      source: /a
"""


def test_a_compose_file_is_read() -> None:
    assert parse_yaml(COMPOSE) == {
        "services": {
            "sandbox": {
                "image": "acme/sandbox:latest",
                "ports": ["8000:8000", "9000:9000"],
                "environment": ["SESSION_TTL_SECONDS=900", "QUOTED=a b"],
                "command": "run this and that\nthen more",
                "notes": "one\n  two\n",
                "empty": None,
                "nothing": None,
                "long": "goes on over lines",
            },
            "other": {"volumes": ["data:/data", {"type": "bind", "source": "/a"}]},
        }
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        ("# only a comment", None),
        ("---\nname: x\n", {"name": "x"}),
        ("\ufeffname: x", {"name": "x"}),
        ("a: 1\nb: true\nc: 1.5", {"a": "1", "b": "true", "c": "1.5"}),
        ("description: Use it # or not", {"description": "Use it"}),
        ("a: {b: 1, c: [d, {e: f}]}", {"a": {"b": "1", "c": ["d", {"e": "f"}]}}),
        ("a: &x 1", {"a": "1"}),
        ("a: |2\n   x\n", {"a": " x\n"}),
        ("a: 'over\n  lines'", {"a": "over lines"}),
        ("null: 1\n~: 2\na: null\nb: 'null'", {"null": "1", "~": "2", "a": None, "b": "null"}),
        ("url: http://a.example/#part", {"url": "http://a.example/#part"}),
        (r'a: "tab\t \"quoted\" \\ \u00e9"', {"a": 'tab\t "quoted" \\ é'}),
        ("a: 'it''s'", {"a": "it's"}),
        ('"a key": 1', {"a key": "1"}),
        ("- a\n- b: 1\n  c: 2\n-\n  - d", ["a", {"b": "1", "c": "2"}, ["d"]]),
        ("a: []", {"a": []}),
        ("just text", "just text"),
        ("a: |\n  x\n\nb: 1", {"a": "x\n", "b": "1"}),
    ],
)
def test_what_people_write_is_read(text: str, found: object) -> None:
    assert parse_yaml(text) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &x 1\nb: *x", r"line 2: the alias \*x"),
        ("a: !!python/object:os.system x", "line 1: the tag"),
        ("a: !mine {b: 1}", "line 1: the tag"),
        ("a:\n\t- b", "line 2: found character"),
        ("a: 1\na: 2", "line 2: the key 'a' is there twice"),
        ("a: 1\n---\nb: 2", "line 2: a second document"),
        ("  a: 1\nb: 2", "line 2: "),
        ("a: 1\nb", "could not find expected ':'"),
        ('a: "b', "line 1: found unexpected end"),
        ("a: [b", "did not find expected"),
        ("? [a]\n: b", "line 1: a key must be a string"),
        ("\n".join(" " * depth + "a:" for depth in range(40)), "nested deeper than 24"),
        ("[" * LONG, "nested deeper than 24"),
        ("a: b\x01", "line 1: control characters"),
    ],
)
def test_what_is_not_read_is_refused_by_its_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_yaml(text)


@pytest.mark.parametrize(
    "text",
    [
        f"name: a{' ' * LONG}b",
        f"a{' ' * LONG}b",
        f"a: [{' ' * LONG}'b]",
        "a: [" + "' " * (LONG // 2) + "]",
        "a: [" + '", ' * (LONG // 3) + "]",
        '"' + "\\" * LONG + '"',
        f"a: x{' #' * (LONG // 2)}",
    ],
    ids=["value", "text", "unclosed", "quotes", "double quotes", "escapes", "comments"],
)
def test_no_line_is_gone_through_again_and_again(text: str) -> None:
    begun = time.monotonic()
    with contextlib.suppress(ValueError):
        parse_yaml(text)
    assert time.monotonic() - begun < 5
