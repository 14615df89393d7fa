"""The audit record over HTTP."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from api.served import wait_for

if TYPE_CHECKING:
    import httpx

    from api.served import Served


def test_what_was_done_is_in_the_record(served: Served, ann: httpx.Client, sandbox: str) -> None:
    ran = ann.post(f"/sandboxes/{sandbox}/exec", json={"code": "print(1)"}, headers={"X-Request-ID": "my-request"})

    of_request = wait_for(lambda: ann.get("/audit", params={"request_id": "my-request"}).json()["items"])
    rows = ann.get("/audit", params={"sandbox_id": sandbox}).json()["items"]

    actions = [row["action"] for row in rows]
    assert "sandbox.create" in actions
    assert "execution.finish" in actions
    assert {row["execution_id"] for row in of_request} == {ran.json()["execution_id"]}
    assert all(row["subject"] == "ann" and row["address"] == "127.0.0.1" for row in rows)
    assert served.keys["ann"] not in str(rows)


def test_each_row_holds_the_hash_of_the_one_before(served: Served, sandbox: str) -> None:
    with served.client("adam") as adam:
        assert sandbox
        rows = adam.get("/audit", params={"limit": 50}).json()["items"]

    assert len(rows) > 1
    assert all(newer["previous"] == older["hash"] for newer, older in itertools.pairwise(rows))


def test_others_see_only_what_they_did(served: Served, sandbox: str) -> None:
    with served.client("bob") as bob, served.client("adam") as adam:
        own = bob.get("/audit", params={"sandbox_id": sandbox}).json()
        asked = bob.get("/audit", params={"subject": "ann"})
        all_of_it = adam.get("/audit", params={"subject": "ann", "sandbox_id": sandbox}).json()

    assert own["items"] == []
    assert asked.status_code == 403
    assert all_of_it["total"] >= 1


def test_a_failed_login_is_in_the_record(served: Served) -> None:
    with served.client("anonymous") as anonymous, served.client("adam") as adam:
        anonymous.get("/sandboxes", headers={"Authorization": "Bearer wrn_guess", "X-Request-ID": "guess-1"})
        rows = adam.get("/audit", params={"request_id": "guess-1"}).json()["items"]

    assert [row["outcome"] for row in rows] == ["unauthenticated"]
    assert "wrn_guess" not in str(rows)
