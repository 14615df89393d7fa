"""Health and numbers over HTTP, and who may see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

if TYPE_CHECKING:
    from api.served import Served


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/health"])
def test_anybody_may_ask_whether_it_is_well(served: Served, path: str) -> None:
    answer = httpx.get(f"{served.url}{path}", trust_env=False)

    assert answer.status_code == 200
    assert answer.json()["status"] in {"alive", "ready", "healthy", "ok"}
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "statuses"),
    [
        ("/metrics", {"nobody": 401, "rita": 200, "ann": 200, "adam": 200}),
        ("/healthz/details", {"nobody": 401, "rita": 403, "ann": 403, "adam": 200}),
    ],
)
def test_numbers_need_a_key_and_details_an_admin(served: Served, path: str, statuses: dict[str, int]) -> None:
    seen = {}
    for who in statuses:
        with served.client(who) as client:
            seen[who] = client.get(f"{served.url}{path}").status_code

    assert seen == statuses


def test_the_details_name_what_isolates(served: Served) -> None:
    with served.client("adam") as adam:
        details = adam.get(f"{served.url}/healthz/details").json()

    assert details["engine"]["name"] == served.settings.engine
    assert bool(details["engine"]["layers"]) is (served.settings.engine == "local")
