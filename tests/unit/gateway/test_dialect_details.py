"""What dialects say of requests that cannot be read."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel, ConfigDict

from warren.gateway.api.problems import retry_after
from warren.gateway.dialects.details import Refused, parse_body, reply

LARGE = "x" * (4 << 20)


class _Item(BaseModel):
    name: str
    size: int


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    code: str
    language: str
    items: list[_Item] = []


def test_what_a_client_sent_is_said_again_where_it_is_short() -> None:
    with pytest.raises(Refused) as refused:
        parse_body(_Body, b'{"code": 1, "items": [{"name": "a", "size": "b"}], "language": "c"}')
    assert isinstance(refused.value.detail, list)
    code, size = refused.value.detail
    assert (code["loc"], code["input"]) == (["body", "code"], 1)
    assert (size["loc"], size["input"]) == (["body", "items", 0, "size"], "b")


@pytest.mark.parametrize(
    "sent",
    [
        {"code": [LARGE]},
        {LARGE: 1, "code": "1", "language": "python"},
        {"items": [{"name": LARGE}] * 3},
        {"items": [{str(number): LARGE[:1000]} for number in range(1000)]},
    ],
    ids=["missing", "unknown", "nested", "many"],
)
def test_a_large_body_full_of_faults_is_not_said_again(sent: object) -> None:
    with pytest.raises(Refused) as refused:
        parse_body(_Body, json.dumps(sent).encode())
    assert len(reply(422, refused.value.detail).body) < 256 << 10


@pytest.mark.parametrize(("seconds", "said"), [(None, "1"), (0.0, "1"), (0.2, "1"), (1.2, "2"), (30.0, "30")])
def test_when_to_come_back_is_never_too_early(seconds: float | None, said: str) -> None:
    assert retry_after(seconds) == {"Retry-After": said}
