"""Kernels over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import httpx


def run(client: httpx.Client, sandbox: str, **body: Any) -> dict[str, Any]:
    result: dict[str, Any] = client.post(f"/sandboxes/{sandbox}/exec", json=body).json()
    return result


def test_kernels_are_made_listed_and_ended(ann: httpx.Client, sandbox: str) -> None:
    run(ann, sandbox, code="1")

    made = ann.post(f"/sandboxes/{sandbox}/kernels", json={"name": "other"})
    twice = ann.post(f"/sandboxes/{sandbox}/kernels", json={"name": "other"})
    listed = ann.get(f"/sandboxes/{sandbox}/kernels").json()["items"]
    ended = ann.delete(f"/sandboxes/{sandbox}/kernels/other")
    left = ann.get(f"/sandboxes/{sandbox}/kernels").json()["items"]

    assert (made.status_code, made.json()["name"], twice.status_code, ended.status_code) == (201, "other", 409, 204)
    assert [kernel["name"] for kernel in listed] == ["main", "other"]
    assert listed[0]["state"] == "idle"
    assert listed[0]["executed"] == 1
    assert [kernel["name"] for kernel in left] == ["main"]


def test_a_kernel_that_is_forked_goes_its_own_way(ann: httpx.Client, sandbox: str) -> None:
    run(ann, sandbox, code="x = 1")

    made = ann.post(f"/sandboxes/{sandbox}/kernels/main/fork", json={"to": "copy"})
    run(ann, sandbox, code="x += 1", kernel="copy")

    assert made.status_code == 201
    assert run(ann, sandbox, code="print(x)", kernel="copy")["stdout"] == "2\n"
    assert run(ann, sandbox, code="print(x)")["stdout"] == "1\n"


def test_a_kernel_goes_back_one_cell(ann: httpx.Client, sandbox: str) -> None:
    run(ann, sandbox, code="x = 'before'")
    run(ann, sandbox, code="x = 'after'")

    back = ann.post(f"/sandboxes/{sandbox}/kernels/main/rollback", json={"cells": 1})

    assert back.json() == {"cells_back": 1}
    assert run(ann, sandbox, code="print(x)")["stdout"] == "before\n"


def test_a_kernel_that_is_restarted_has_forgotten(ann: httpx.Client, sandbox: str) -> None:
    run(ann, sandbox, code="x = 1")

    restarted = ann.post(f"/sandboxes/{sandbox}/kernels/main/restart")

    assert restarted.status_code == 200
    assert run(ann, sandbox, code="x")["error"]["name"] == "NameError"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/nosuch/restart", None, 404),
        ("/nosuch/fork", {"to": "x"}, 404),
        ("/main/fork", {}, 422),
        ("/main/fork", {"to": "a b"}, 422),
        ("/main/rollback", {"cells": 9}, 422),
        ("/main/rollback", {"cells": 8}, 409),
        ("/a%20b/restart", None, 404),
    ],
)
def test_what_cannot_be_done_says_why(
    ann: httpx.Client, shared: str, path: str, body: dict[str, Any] | None, status: int
) -> None:
    run(ann, shared, code="1")

    refused = ann.post(f"/sandboxes/{shared}/kernels{path}", json=body)

    assert refused.status_code == status, refused.text
    assert refused.json()["detail"]
