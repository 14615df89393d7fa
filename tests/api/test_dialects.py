"""What all dialects share: keys in addresses, doors that ask for none, and who answers what in whose words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import pydantic
import pytest

from api.served import DEADLINE_S, Served
from warren.gateway.app import DIALECTS
from warren.gateway.dialects import details
from warren.gateway.dialects.details import Refused, parse_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.settings import Settings


class Asked(pydantic.BaseModel):
    n: int = pydantic.Field(ge=1)


def test_a_key_in_the_address_is_as_good_as_one_in_a_header(served: Served) -> None:
    key = served.keys["ann"]
    with httpx.Client(base_url=f"{served.url}/k/{key}", timeout=DEADLINE_S, trust_env=False) as client:
        assert client.get("/api/v1/sandboxes").status_code == 200
        assert client.get("/api/v1/sandboxes", headers={"Authorization": "Bearer made-up"}).status_code == 200
        assert client.get("/livez").json() == {"status": "ok"}


@pytest.mark.parametrize(
    "address", ["/k/wrn_unknown/api/v1/sandboxes", "/k//api/v1/sandboxes", "/k/%00/api/v1/sandboxes"]
)
def test_a_wrong_key_in_the_address_is_refused_and_not_repeated(served: Served, address: str) -> None:
    with served.client("ann") as client:
        answer = client.get(f"{served.url}{address}")
    assert answer.status_code == 401
    assert "wrn_unknown" not in answer.text


def test_a_key_alone_leads_nowhere(served: Served) -> None:
    with served.client("anonymous") as client:
        assert client.get(f"{served.url}/k/{served.keys['ann']}").status_code in {200, 307, 404}


@pytest.mark.parametrize(
    ("body", "kind", "where"),
    [
        (b'{"n": 0}', "greater_than_equal", ["body", "n"]),
        (b'{"n": "x"}', "int_parsing", ["body", "n"]),
        (b"{}", "missing", ["body", "n"]),
        (b"", "missing", ["body"]),
        (b"{", "json_invalid", ["body", 1]),
        (b"[]", "model_attributes_type", ["body"]),
    ],
)
def test_a_body_that_does_not_fit_is_refused_field_by_field(body: bytes, kind: str, where: list[object]) -> None:
    with pytest.raises(Refused) as caught:
        parse_body(Asked, body)
    assert caught.value.status == 422
    (error,) = json.loads(bytes(details.respond(caught.value, "req").body))["detail"]
    assert (error["type"], error["loc"]) == (kind, where)
    assert "url" not in error


def test_a_dialect_that_is_switched_off_is_not_there(make_settings: Callable[..., Settings]) -> None:
    names = {dialect.name for dialect in DIALECTS}
    off = {name: {"enabled": False} for name in names}
    served = Served(make_settings(dialects=off))
    served.start()
    try:
        for dialect in DIALECTS:
            path = dialect.operations[0].path.partition("{")[0]
            with served.client() as client:
                answer = client.request(dialect.operations[0].method, path)
            assert answer.status_code == 404
    finally:
        served.stop()
