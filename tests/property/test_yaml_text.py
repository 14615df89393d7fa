"""The reader of YAML returns a tree for every document of strings, and a line number for what it refuses."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from warren.core.skills.yaml_text import parse_yaml


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return data is not None


words = st.text(
    st.characters(max_codepoint=0x17F, categories=("L", "N"), include_characters=" -_.:/#'\"\\$"), max_size=30
)
names = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_.-]{0,20}\Z").filter(lambda name: name not in {"null", "Null", "NULL"})
trees = st.recursive(
    words,
    lambda inner: st.lists(inner, min_size=1, max_size=4) | st.dictionaries(names, inner, min_size=1, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(names, trees, min_size=1, max_size=4), st.booleans())
def test_what_a_library_writes_is_read(tree: dict[str, Any], flow: bool) -> None:
    written = yaml.dump(tree, Dumper=Dumper, default_flow_style=flow, default_style='"', allow_unicode=True)

    assert parse_yaml(written) == tree


@given(st.text(st.characters(codec="utf-8"), max_size=200) | st.text(" \n-:#[]'\"|>ab\t&*{}", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_yaml(text)
        why = "line 1"
    except ValueError as exc:
        why = str(exc)
    assert why.startswith("line ")
