"""Sandboxes over HTTP: made, found, listed, changed, stopped, started, removed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import httpx

    from api.served import Served


def test_a_sandbox_is_made_and_says_where_it_is(ann: httpx.Client, sandbox: str) -> None:
    shown = ann.get(f"/sandboxes/{sandbox}").json()

    assert shown["status"] == "running"
    assert shown["workspace_path"] == "/workspace"
    assert shown["image"] == "python"
    assert shown["memory_mb"] == 512
    assert shown["storage"] == "persistent"
    assert shown["owner"] == {"tenant": "tests", "subject": "ann"}


def test_a_create_without_a_body_takes_the_defaults(ann: httpx.Client) -> None:
    made = ann.post("/sandboxes")

    assert made.status_code == 201
    assert made.headers["location"] == f"/api/v1/sandboxes/{made.json()['id']}"
    assert ann.delete(made.headers["location"].removeprefix("/api/v1")).status_code == 204


def test_what_was_chosen_is_what_it_has(ann: httpx.Client) -> None:
    asked = {
        "memory_mb": 256,
        "cpu": 0.5,
        "pids": 100,
        "disk_mb": 64,
        "checkpoints": 2,
        "idle_timeout_seconds": 60,
        "max_lifetime_seconds": 3600,
        "metadata": {"agent": "planner", "größe": "ü"},
        "storage": "ephemeral",
    }

    made = ann.post("/sandboxes", json={**asked, "env": {"GREETING": "hello"}}).json()
    told = ann.post(f"/sandboxes/{made['id']}/exec", json={"command": "echo $GREETING"}).json()
    ann.delete(f"/sandboxes/{made['id']}")

    assert {name: made[name] for name in asked} == asked
    assert made["expires_at"] > made["created_at"]
    assert "env" not in made
    assert told["stdout"] == "hello\n"


def test_the_same_session_key_is_the_same_sandbox(ann: httpx.Client) -> None:
    first = ann.post("/sandboxes", json={"session_key": "talk-1"})
    second = ann.post("/sandboxes", json={"session_key": "talk-1"})
    ann.delete(f"/sandboxes/{first.json()['id']}")

    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]


def test_twenty_who_race_for_a_session_key_get_one_sandbox(served: Served) -> None:
    with served.client("ann") as ann, ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda _: ann.post("/sandboxes", json={"session_key": "race"}), range(20)))
        made = {answer.json()["id"] for answer in answers}
        ann.delete(f"/sandboxes/{next(iter(made))}")

    assert len(made) == 1
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]


def test_a_session_key_is_one_persons_own(served: Served) -> None:
    with served.client("ann") as ann, served.client("bob") as bob:
        anns = ann.post("/sandboxes", json={"session_key": "mine"}).json()["id"]
        bobs = bob.post("/sandboxes", json={"session_key": "mine"}).json()["id"]
        ann.delete(f"/sandboxes/{anns}")
        bob.delete(f"/sandboxes/{bobs}")

    assert anns != bobs


def test_an_idempotency_key_makes_one_sandbox(ann: httpx.Client) -> None:
    headers = {"Idempotency-Key": "create-1"}

    first = ann.post("/sandboxes", json={}, headers=headers)
    again = ann.post("/sandboxes", json={}, headers=headers)
    other = ann.post("/sandboxes", json={"memory_mb": 128}, headers=headers)
    ann.delete(f"/sandboxes/{first.json()['id']}")

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert other.status_code == 409
    assert other.json()["code"] == "conflict"


def test_a_list_is_filtered_and_cut_into_parts(ann: httpx.Client) -> None:
    made = [ann.post("/sandboxes", json={"metadata": {"n": str(i % 2)}}).json()["id"] for i in range(3)]
    ann.post(f"/sandboxes/{made[0]}/stop")

    labelled = ann.get("/sandboxes", params={"metadata": "n=0"}).json()
    stopped = ann.get("/sandboxes", params={"metadata": "n=0", "status": ["stopped", "stopping"]}).json()
    part = ann.get("/sandboxes", params={"limit": 1, "offset": 1}).json()
    for each in made:
        ann.delete(f"/sandboxes/{each}")

    assert [item["id"] for item in labelled["items"]] == [made[2], made[0]]
    assert [item["id"] for item in stopped["items"]] == [made[0]]
    assert (len(part["items"]), part["offset"], part["limit"]) == (1, 1, 1)
    assert part["items"][0]["id"] == made[1]
    assert part["total"] >= 3


def test_another_owners_sandbox_is_not_found(served: Served, sandbox: str) -> None:
    with served.client("bob") as bob:
        answers = [
            bob.get(f"/sandboxes/{sandbox}"),
            bob.patch(f"/sandboxes/{sandbox}", json={"metadata": {}}),
            bob.post(f"/sandboxes/{sandbox}/exec", json={"command": "id"}),
            bob.post(f"/sandboxes/{sandbox}/stop"),
            bob.get(f"/sandboxes/{sandbox}/executions"),
            bob.get(f"/sandboxes/{sandbox}/kernels"),
            bob.get(f"/sandboxes/{sandbox}/usage"),
            bob.delete(f"/sandboxes/{sandbox}"),
        ]
        listed = bob.get("/sandboxes").json()

    assert [answer.status_code for answer in answers] == [404] * len(answers)
    assert {answer.json()["code"] for answer in answers} == {"not_found"}
    assert listed["items"] == []


def test_an_admin_sees_everybodys_and_others_may_not(served: Served, sandbox: str) -> None:
    with served.client("adam") as adam, served.client("bob") as bob:
        listed = adam.get("/sandboxes", params={"everybody": "true"}).json()
        own = adam.get("/sandboxes").json()
        shown = adam.get(f"/sandboxes/{sandbox}")
        refused = bob.get("/sandboxes", params={"everybody": "true"})

    assert sandbox in [item["id"] for item in listed["items"]]
    assert own["items"] == []
    assert shown.status_code == 200
    assert refused.status_code == 403


def test_labels_and_times_change(ann: httpx.Client, sandbox: str) -> None:
    changed = ann.patch(
        f"/sandboxes/{sandbox}",
        json={"metadata": {"a": "b"}, "idle_timeout_seconds": 0, "max_lifetime_seconds": 7200},
    )

    assert changed.status_code == 200
    assert changed.json()["metadata"] == {"a": "b"}
    assert changed.json()["idle_timeout_seconds"] is None
    assert changed.json()["expires_at"] is not None
    assert ann.get(f"/sandboxes/{sandbox}").json() == changed.json()


def test_limits_change_where_the_engine_can(served: Served, ann: httpx.Client, sandbox: str) -> None:
    changed = ann.patch(f"/sandboxes/{sandbox}", json={"memory_mb": 300})

    if served.settings.engine == "bare":
        assert (changed.status_code, changed.json()["code"]) == (501, "unsupported")
    else:
        assert changed.json()["memory_mb"] == 300


def test_the_workspace_survives_a_stop(ann: httpx.Client, sandbox: str) -> None:
    ann.post(f"/sandboxes/{sandbox}/exec", json={"command": "echo kept > note"})

    stopped = ann.post(f"/sandboxes/{sandbox}/stop").json()
    again = ann.post(f"/sandboxes/{sandbox}/stop")
    started = ann.post(f"/sandboxes/{sandbox}/start").json()
    ann.post(f"/sandboxes/{sandbox}/stop")
    resumed = ann.post(f"/sandboxes/{sandbox}/resume").json()
    told = ann.post(f"/sandboxes/{sandbox}/exec", json={"command": "cat note"}).json()

    assert (stopped["status"], started["status"], resumed["status"]) == ("stopped", "running", "running")
    assert again.status_code == 200
    assert told["stdout"] == "kept\n"


def test_running_something_starts_a_stopped_sandbox(ann: httpx.Client, sandbox: str) -> None:
    ann.post(f"/sandboxes/{sandbox}/stop")

    told = ann.post(f"/sandboxes/{sandbox}/exec", json={"code": "print(6 * 7)"})

    assert told.json()["stdout"] == "42\n"
    assert ann.get(f"/sandboxes/{sandbox}").json()["status"] == "running"


def test_a_removed_sandbox_is_gone(ann: httpx.Client) -> None:
    made = ann.post("/sandboxes").json()["id"]

    removed = ann.delete(f"/sandboxes/{made}")

    assert (removed.status_code, removed.content) == (204, b"")
    assert ann.get(f"/sandboxes/{made}").status_code == 404
    assert ann.delete(f"/sandboxes/{made}").status_code == 404


def test_usage_is_what_the_operating_system_counts(ann: httpx.Client, sandbox: str) -> None:
    usage = ann.get(f"/sandboxes/{sandbox}/usage").json()

    assert usage["memory_bytes"] > 1_000_000
    assert usage["pids"] >= 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"memory": 512}, "memory_mb"),
        ({"sesion_key": "x"}, "did you mean session_key?"),
        ({"memory_mb": "512"}, "memory_mb"),
        ({"memory_mb": 1}, "greater than or equal to 64"),
        ({"memory_mb": 10**30}, "memory_mb"),
        ({"cpu": -1}, "cpu"),
        ({"env": {"A=B": "x"}}, "env"),
        ({"env": {"A": "nul\0"}}, "env"),
        ({"metadata": {"x": 1}}, "metadata.x"),
        ({"network_enabled": "yes"}, "network_enabled"),
        ({"egress": "everything"}, "egress"),
        ({"egress": {"mode": "none", "rules": [{"host": "a.example"}]}}, "egress"),
        ({"egress": {"rules": [{"host": "a b"}]}}, "be the name of a host"),
        ({"egress": {"rules": [{"host": "a.example", "ports": [0]}]}}, "ports"),
        ({"session_key": ""}, "session_key"),
        ({"storage": "forever"}, "storage"),
        ([], "object"),
    ],
)
def test_what_is_wrong_with_a_create_is_named(served: Served, body: object, said: str) -> None:
    with served.client("ann") as ann:
        refused = ann.post("/sandboxes", json=body)

    assert refused.status_code == 422
    assert refused.json()["code"] == "invalid_fields"
    assert said in refused.json()["detail"]
    assert refused.json()["errors"]


def test_an_unknown_image_is_not_found_and_the_nearest_is_named(ann: httpx.Client) -> None:
    refused = ann.post("/sandboxes", json={"image": "pyton"})

    assert refused.status_code == 404
    assert "python" in refused.json()["detail"]


def test_a_key_that_reads_cannot_run(served: Served, sandbox: str) -> None:
    with served.client("rita") as rita:
        answers = [
            rita.post("/sandboxes"),
            rita.post(f"/sandboxes/{sandbox}/exec", json={"command": "id"}),
            rita.delete(f"/sandboxes/{sandbox}"),
            rita.post("/run", json={"command": "id"}),
        ]
        listed = rita.get("/sandboxes")

    assert {answer.status_code for answer in answers} == {403}
    assert listed.status_code == 200


def test_without_a_key_there_is_nothing(served: Served) -> None:
    with served.client("anonymous") as anonymous:
        missing = anonymous.get("/sandboxes")
        wrong = anonymous.get("/sandboxes", headers={"Authorization": "Bearer wrn_nonsense"})
        other = anonymous.get("/sandboxes", headers={"X-API-Key": served.keys["ann"]})

    assert (missing.status_code, wrong.status_code, other.status_code) == (401, 401, 200)
    assert missing.headers["www-authenticate"].startswith("Bearer")
    assert missing.json()["code"] == "unauthenticated"


def test_images_are_listed_with_their_state(ann: httpx.Client) -> None:
    images = {image["name"]: image for image in ann.get("/images").json()["items"]}

    assert images["python"]["state"] == "built"
    assert images["python"]["is_default"] is True
    assert images["python"]["size_bytes"] > 0
