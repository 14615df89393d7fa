"""Health and numbers over HTTP, and who may see them."""

from __future__ import annotations

import httpx
import pytest

from api.served import DEADLINE_S, Served

pytestmark = pytest.mark.every_engine


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/health"])
def test_anybody_may_ask_whether_it_is_well(served: Served, path: str) -> None:
    answer = httpx.get(f"{served.url}{path}", timeout=DEADLINE_S, trust_env=False)

    assert answer.status_code == 200
    assert answer.json()["status"] in {"healthy", "ok"}
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "statuses"),
    [
        ("/metrics", {"anonymous": 401, "rita": 200, "ann": 200, "adam": 200}),
        ("/healthz/details", {"anonymous": 401, "rita": 200, "ann": 200, "adam": 200}),
        ("/health/details", {"anonymous": 401, "rita": 200, "ann": 200, "adam": 200}),
    ],
)
def test_numbers_and_details_need_a_key(served: Served, path: str, statuses: dict[str, int]) -> None:
    seen = {}
    for who in statuses:
        with served.client(who) as client:
            seen[who] = client.get(f"{served.url}{path}").status_code

    assert seen == statuses


def test_only_an_admin_sees_how_all_of_it_is(served: Served) -> None:
    with served.client("ann") as ann, served.client("adam") as adam:
        some, every = (client.get(f"{served.url}/healthz/details").json() for client in (ann, adam))

    assert some["status"] == every["status"] == "healthy"
    assert {"sandboxes", "audit", "engine", "pool"} <= every.keys() - some.keys()


def test_the_details_name_what_isolates(served: Served) -> None:
    with served.client("adam") as adam:
        details = adam.get(f"{served.url}/healthz/details").json()

    assert details["engine"]["name"] == served.settings.engine
    assert bool(details["engine"]["layers"]) is (served.settings.engine == "local")
