"""Tokens and tenants over HTTP: who a token makes of its bearer, what a refusal says, and where ceilings stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from api.served import Served
from unit.core.minting import SECRET, mint
from warren.domain.values import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from warren.settings import Settings


@pytest.fixture(scope="module")
def served(make_settings: Callable[..., Settings]) -> Iterator[Served]:
    """A service that takes tokens, and on which one tenant may have little."""
    settings = make_settings(
        "bare",
        jwt={"secret": SECRET, "issuer": ("https://issuer.example",), "audience": ("warren",), "leeway_s": 0},
        tenants={
            "small": {"active": 1, "executions": 1, "max_memory_bytes": 128 * MIB, "max_cpus": 0.5},
            "slow": {"requests_per_minute": 2},
        },
    )
    served = Served(settings)
    served.start()
    yield served
    served.stop()
    assert served.left == []


def client(served: Served, **claims: Any) -> httpx.Client:
    return served.client("anonymous", headers={"Authorization": f"Bearer {mint(**claims)}"})


def refusals(served: Served) -> list[dict[str, Any]]:
    with served.client("adam") as adam:
        rows: list[dict[str, Any]] = adam.get("/audit", params={"action": "auth.refuse", "limit": 50}).json()["items"]
    return rows


def test_a_token_is_enough(served: Served) -> None:
    with client(served, sub="auth0|5f7c", scope="openid warren:run") as ann:
        made = ann.post("/sandboxes", json={})
        assert made.status_code == 201, made.text
        sandbox_id = made.json()["id"]
        ran = ann.post(f"/sandboxes/{sandbox_id}/exec", json={"code": "print(6 * 7)"})
        rows = ann.get("/audit", params={"sandbox_id": sandbox_id}).json()["items"]
        assert ann.delete(f"/sandboxes/{sandbox_id}").status_code == 204

    assert ran.json()["stdout"] == "42\n"
    assert {(row["tenant"], row["subject"], row["key_id"]) for row in rows} == {("acme", "jwt:auth0|5f7c", "")}


def test_a_token_may_stand_where_a_key_may(served: Served) -> None:
    with served.client("anonymous", headers={"X-API-Key": mint()}) as ann:
        assert ann.get("/sandboxes").status_code == 200


def test_a_token_and_a_key_of_one_name_are_two_owners(served: Served) -> None:
    with served.client("ann") as key, client(served, tenant="tests", sub="ann") as token:
        made = key.post("/sandboxes", json={}).json()["id"]
        assert token.get(f"/sandboxes/{made}").status_code == 404
        assert token.get("/sandboxes").json()["total"] == 0
        assert key.delete(f"/sandboxes/{made}").status_code == 204


def test_the_scopes_of_a_token_are_those_of_keys(served: Served) -> None:
    with (
        client(served, scope="warren:read") as reader,
        client(served, scope="warren:admin") as admin,
        client(served, scope="admin") as liar,
    ):
        assert reader.get("/sandboxes").status_code == 200
        assert reader.post("/sandboxes", json={}).status_code == 403
        assert admin.get("/sandboxes", params={"everybody": True}).status_code == 200
        assert liar.get("/sandboxes", params={"everybody": True}).status_code == 403


@pytest.mark.parametrize(
    ("changed", "reason", "said"),
    [
        ({"exp": int(time.time()) - 5}, "jwt_expired", "expired"),
        ({"aud": "other"}, "jwt_audience", "another audience"),
        ({"iss": "https://evil.example"}, "jwt_issuer", "not trusted"),
        ({"tenant": None}, "jwt_tenant", "must name a tenant"),
        ({"sub": None}, "jwt_subject", "must name its bearer"),
        ({"exp": None}, "jwt_no_expiry", "no exp"),
    ],
)
def test_the_bearer_of_a_genuine_token_is_told_what_is_wrong(
    served: Served, changed: dict[str, Any], reason: str, said: str
) -> None:
    with client(served, **changed) as caller:
        answer = caller.get("/sandboxes")

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert said in answer.json()["detail"]
    assert answer.headers["www-authenticate"].startswith("Bearer")
    row = refusals(served)[0]
    assert row["details"]["reason"] == reason
    assert row["address"] == "127.0.0.1"
    assert row["subject"] == ("" if reason in {"jwt_tenant", "jwt_subject"} else "jwt:ann")


def test_who_forged_a_token_is_told_nothing_and_the_record_has_none_of_it(served: Served) -> None:
    forged = mint("another secret, which is as long as it has to be to be one")
    with served.client("anonymous", headers={"Authorization": f"Bearer {forged}"}) as caller:
        answer = caller.get("/sandboxes")
    row = refusals(served)[0]

    assert answer.status_code == 401
    assert answer.json()["detail"] == "the token is not valid here: get another from its issuer"
    assert (row["details"], row["tenant"], row["subject"]) == ({"reason": "jwt_signature"}, "", "")
    assert not any(part in str(refusals(served)) for part in forged.split("."))


def test_a_key_without_the_word_bearer_is_told_which_word_is_missing(served: Served) -> None:
    with served.client("anonymous", headers={"Authorization": served.keys["ann"]}) as ann:
        answer = ann.get("/sandboxes")

    assert answer.status_code == 401
    assert "the word Bearer is missing" in answer.json()["detail"]
    assert refusals(served)[0]["details"]["reason"] == "no_bearer"


def test_where_no_tokens_are_taken_a_token_is_told_so(bare: Served) -> None:
    with bare.client("anonymous", headers={"Authorization": f"Bearer {mint()}"}) as ann:
        answer = ann.get("/sandboxes")

    assert answer.status_code == 401
    assert "takes API keys, and no tokens" in answer.json()["detail"]


def test_a_tenant_stops_at_its_own_limit_for_all_its_members(served: Served) -> None:
    with client(served, tenant="small", sub="one") as one, client(served, tenant="small", sub="two") as two:
        made = one.post("/sandboxes", json={}).json()
        refused = two.post("/sandboxes", json={})
        assert one.post(f"/sandboxes/{made['id']}/stop").status_code == 200
        allowed = two.post("/sandboxes", json={})
        resumed = one.post(f"/sandboxes/{made['id']}/start")
        for caller, sandbox_id in ((one, made["id"]), (two, allowed.json()["id"])):
            assert caller.delete(f"/sandboxes/{sandbox_id}").status_code == 204

    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
    assert refused.json()["detail"] == (
        "the ceiling of tenant 'small' of 1 active sandboxes is used up: stop or delete one"
    )
    assert allowed.status_code == 201
    assert resumed.status_code == 429
    assert (made["memory_mb"], made["cpu"]) == (128, 0.5)


def test_one_sandbox_is_no_larger_than_its_tenant_allows(served: Served) -> None:
    with client(served, tenant="small") as ann:
        refused = ann.post("/sandboxes", json={"memory_mb": 256})
        one_shot = ann.post("/run", json={"code": "1", "cpu": 2})
        made = ann.post("/sandboxes", json={"memory_mb": 64}).json()
        grown = ann.patch(f"/sandboxes/{made['id']}", json={"memory_mb": 512})
        assert ann.delete(f"/sandboxes/{made['id']}").status_code == 204

    assert {each.status_code for each in (refused, one_shot, grown)} == {400}
    assert refused.json()["detail"] == (
        "memory_bytes may be at most 128M in a sandbox of tenant 'small', and 256M was asked for"
    )


def test_executions_and_requests_of_a_tenant_have_ceilings_too(served: Served) -> None:
    with client(served, tenant="small") as ann:
        made = ann.post("/sandboxes", json={}).json()["id"]
        body = {"command": "cat", "background": True, "stdin_open": True}
        assert ann.post(f"/sandboxes/{made}/exec", json=body).status_code == 202
        second = ann.post(f"/sandboxes/{made}/exec", json={"code": "1"})
        assert ann.delete(f"/sandboxes/{made}").status_code == 204
    with client(served, tenant="slow", sub="one") as one, client(served, tenant="slow", sub="two") as two:
        statuses = [each.get("/sandboxes").status_code for each in (one, two)]
        limited = one.get("/sandboxes")

    assert (second.status_code, "ceiling of tenant 'small'" in second.json()["detail"]) == (429, True)
    assert statuses == [200, 200]
    assert (limited.status_code, limited.headers["ratelimit-limit"]) == (429, "2")
    assert "requests of tenant 'slow'" in limited.json()["detail"]
