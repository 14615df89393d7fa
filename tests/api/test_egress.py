"""Egress over HTTP: policies as words and as objects, ceilings, grants, and secrets that are never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api.served import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from warren.settings import Settings

RULES = [{"host": "*.Example.ORG", "ports": [443]}, {"host": "10.1.2.3/8", "ports": [5432], "methods": []}]
VALUE = "s3cret-value-of-ann"


@pytest.fixture(scope="module")
def ann(make_settings: Callable[..., Settings]) -> Iterator[httpx.Client]:
    """A user whose tenant may reach a private network besides what is public."""
    dialects = {"onyx": {"network": "packages"}, "chatui": {"network": "open"}}
    served = Served(make_settings("bare", tenants={"tests": {"egress_hosts": ("10.0.0.0/8",)}}, dialects=dialects))
    served.start()
    with served.client("ann") as client:
        yield client
        for item in client.get("/sandboxes", params={"limit": 200}).json()["items"]:
            client.delete(f"/sandboxes/{item['id']}")
    served.stop()


def test_what_a_sandbox_may_reach_is_a_word_or_an_object_and_always_answered_as_one(ann: httpx.Client) -> None:
    plain = ann.post("/sandboxes", json={}).json()
    assert (plain["egress"], plain["network_enabled"]) == ({"mode": "none", "rules": []}, False)
    told = ann.post("/sandboxes", json={"network_enabled": True}).json()
    assert (told["egress"]["mode"], told["network_enabled"]) == ("open", True)
    made = ann.post("/sandboxes", json={"egress": {"rules": RULES}})
    assert made.status_code == 201, made.text
    assert made.json()["egress"] == {
        "mode": "rules",
        "rules": [
            {"host": "*.example.org", "ports": [443], "methods": []},
            {"host": "10.0.0.0/8", "ports": [5432], "methods": []},
        ],
    }
    where = f"/sandboxes/{made.json()['id']}"
    assert ann.get(where).json()["egress"] == made.json()["egress"]
    assert ann.patch(where, json={"metadata": {"a": "b"}}).json()["egress"] == made.json()["egress"]
    assert ann.patch(where, json={"egress": "packages"}).json()["egress"] == {"mode": "packages", "rules": []}
    refused = ann.patch(where, json={"egress": {"rules": [{"host": "192.168.1.1"}]}})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "tenant.egress_hosts" in refused.json()["detail"]
    ran = ann.post("/run", json={"code": "1", "egress": {"mode": "open", "rules": RULES}})
    assert ran.status_code == 200, ran.text
    assert ann.post("/run", json={"code": "1", "egress": {"rules": [{"host": "127.0.0.1"}]}}).status_code == 403


def test_grants_are_made_listed_and_taken_back(ann: httpx.Client) -> None:
    where = f"/sandboxes/{ann.post('/sandboxes').json()['id']}/egress/grants"
    made = ann.post(where, json={"host": "API.example.org", "ports": [443, 443], "expires_in_seconds": 600})
    grant = made.json()

    assert made.status_code == 201
    assert (grant["host"], grant["ports"], grant["methods"]) == ("api.example.org", [443], [])
    assert grant["expires_at"] > grant["created_at"]
    assert ann.get(where).json() == {"items": [grant]}
    assert ann.delete(f"{where}/{grant['id']}").status_code == 204
    assert ann.get(where).json() == {"items": []}
    assert ann.delete(f"{where}/{grant['id']}").status_code == 404
    assert ann.delete(f"{where}/nonsense").status_code == 404
    assert ann.post(where, json={"host": "127.0.0.1"}).status_code == 403
    assert ann.post(where, json={"host": "a.example", "expires_in_seconds": 0}).status_code == 422


def test_a_secret_is_never_shown(ann: httpx.Client) -> None:
    sandbox = ann.post("/sandboxes", json={"env": {"TAKEN": "x"}}).json()["id"]
    where = f"/sandboxes/{sandbox}/secrets"
    body = {"name": "API_TOKEN", "value": VALUE, "hosts": ["api.example.org"]}
    made = ann.post(where, json=body)
    ran = ann.post(f"/sandboxes/{sandbox}/exec", json={"command": "env"})
    answers = [made, ran, ann.get(where), ann.get(f"/sandboxes/{sandbox}")]
    answers += [
        ann.post(where, json={**body, "hosts": ["*.example.org"]}),
        ann.post(where, json={**body, "name": "TAKEN"}),
    ]
    answers.append(ann.get("/audit", params={"sandbox_id": sandbox}))
    answers.append(ann.post(where, json={**body, "value": f"{VALUE}\n"}))

    assert [answer.status_code for answer in answers] == [201, 200, 200, 200, 422, 409, 200, 422]
    assert made.json() == answers[2].json()["items"][0]
    assert f"API_TOKEN={made.json()['placeholder']}" in ran.json()["stdout"]
    assert not [answer for answer in answers if VALUE in answer.text]
    assert ann.delete(f"{where}/API_TOKEN").status_code == 204
    assert ann.delete(f"{where}/API_TOKEN").status_code == 404
    assert ann.get(where).json() == {"items": []}


def test_dialects_have_the_network_that_their_settings_say(ann: httpx.Client) -> None:
    home = str(ann.base_url).removesuffix("/api/v1/")
    asked = [
        ann.post(f"{home}/v1/sessions", json={"network_enabled": True}),
        ann.post(f"{home}/v1/sessions", json={"network_enabled": False}),
        ann.post(f"{home}/containers", json={"enable_network": True}),
        ann.post(f"{home}/containers", json={}),
    ]
    found = ann.get("/sandboxes", params={"limit": 4}).json()["items"]

    assert [answer.status_code for answer in asked] == [201, 201, 200, 200]
    assert [each["egress"]["mode"] for each in reversed(found)] == ["packages", "none", "open", "none"]
