"""What is wrong with a request, in words that say what to write instead."""

from __future__ import annotations

import pytest

from warren.gateway.api.bodies import parse_body, parse_query
from warren.gateway.api.problems import InvalidFields
from warren.gateway.dialects.native.schemas_files import WriteFile
from warren.gateway.dialects.native.schemas_sandboxes import CreateSandbox, ListSandboxes


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            b'{"env": {"A B": "x"}}',
            "env: the name 'A B' must have 1 to 128 letters, digits and underscores, and begin with no digit",
        ),
        (b'{"env": {"A": "\\u0000"}}', "env.A: must hold no NUL"),
        (b'{"metadata": {"": "x"}}', "metadata: the name '' must have 1 to 128 characters, and no NUL"),
        (b'{"image": "a b"}', "image: must be the name of an image: letters, digits and . _ / : @ -, no spaces"),
    ],
)
def test_a_text_of_the_wrong_form_is_explained_without_a_regular_expression(body: bytes, said: str) -> None:
    with pytest.raises(InvalidFields) as caught:
        parse_body(CreateSandbox, body)

    assert str(caught.value) == said


def test_so_is_one_in_an_address() -> None:
    with pytest.raises(InvalidFields, match="be name=value"):
        parse_query(ListSandboxes, b"metadata=alone")
    with pytest.raises(InvalidFields, match="mode: must be three octal digits, such as 644"):
        parse_query(WriteFile, b"mode=rwx")
