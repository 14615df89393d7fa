"""What a client may send: sizes, depth, heads, methods, types; and what comes with every answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from api.served import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from warren.settings import Settings

KIB = 1024
LIMIT = 64 * KIB


@pytest.fixture(scope="module")
def narrow(make_settings: Callable[..., Settings]) -> Iterator[Served]:
    """A service that takes little, and that one web page may call."""
    settings = make_settings(
        "bare",
        serve={"body_bytes": LIMIT, "upload_bytes": 4 * LIMIT, "cors_origins": ("https://page.example",)},
        quota={"requests_per_minute": 100_000},
    )
    served = Served(settings)
    served.start()
    yield served
    served.stop()


@pytest.fixture
def client(narrow: Served) -> Iterator[httpx.Client]:
    with narrow.client("ann") as client:
        yield client


def request(served: Served, head: str, body: bytes = b"", method: str = "POST", path: str = "/api/v1/run") -> bytes:
    """Send a request as it is written here, and return all of the answer."""
    key = served.keys["ann"]
    start = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n"
    return served.send_raw(f"{start}{head}\r\n".encode() + body)


@pytest.mark.parametrize("path", ["/livez", "/api/v1/sandboxes", "/nothing"])
@pytest.mark.parametrize("hosts", ["", "Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n", "Host: a\r\nHost: b\r\n"])
def test_a_request_has_one_host(narrow: Served, path: str, hosts: str) -> None:
    """A proxy that takes the first and a service that takes the last disagree about who is asked."""
    head = f"{hosts}Authorization: Bearer {narrow.keys['ann']}\r\nConnection: close\r\n\r\n"

    assert narrow.send_raw(f"GET {path} HTTP/1.1\r\n{head}".encode()).startswith(b"HTTP/1.1 400 ")


def test_a_program_that_speaks_http_1_0_needs_no_host(narrow: Served) -> None:
    assert narrow.send_raw(b"GET /livez HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "path", ["/api%2fv1/sandboxes", "/api/v1%2Fsandboxes", "/api%2Fv1%2Fsandboxes", "/k%2f{key}/api/v1/sandboxes"]
)
def test_a_slash_that_is_written_as_a_code_is_no_part_of_an_address(narrow: Served, path: str) -> None:
    """A proxy with a rule for /api/v1 does not see it there."""
    answer = request(narrow, "", method="GET", path=path.format(key=narrow.keys["ann"]))

    assert answer.startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("named", [{"Origin": "https://page.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_a_browser_names_the_type_of_what_it_sends(client: httpx.Client, named: dict[str, str]) -> None:
    """A page of any site makes a browser send text; only with a type that is JSON it has to ask first."""
    body = b'{"nothing": 1}'

    assert client.post("/run", content=body, headers=named).status_code == 415
    assert client.post("/run", content=body, headers={**named, "Content-Type": "application/json"}).status_code == 422
    assert client.post("/run", content=body).status_code == 422


def test_a_body_over_the_limit_is_refused_before_it_is_read(narrow: Served) -> None:
    answer = request(narrow, f"Content-Type: application/json\r\nContent-Length: {10 * LIMIT}\r\n")

    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"code":"too_large"' in answer
    assert b"connection: close" in answer.lower()


def test_a_body_in_chunks_is_counted_as_it_comes(narrow: Served) -> None:
    chunk = b"%x\r\n%s\r\n" % (KIB, b"x" * KIB)

    answer = request(narrow, "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n", chunk * 80)

    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer.lower()


def test_a_body_at_the_limit_is_read(client: httpx.Client) -> None:
    body = json.dumps({"nothing": "x" * (LIMIT - 15)}).encode()

    assert len(body) == LIMIT
    assert client.post("/run", content=body, headers={"Content-Type": "application/json"}).status_code == 422


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 2\r\nContent-Length: 3\r\n",
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x10\r\n",
    ],
)
def test_a_body_of_two_lengths_or_none_is_no_request(narrow: Served, head: str) -> None:
    answer = request(narrow, f"Content-Type: application/json\r\n{head}", b"{}")

    assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"":'])
def test_json_that_is_nested_too_deeply_is_refused(client: httpx.Client, opening: str) -> None:
    answer = client.post("/run", content=opening * 100, headers={"Content-Type": "application/json"})

    assert answer.status_code == 400
    assert "nested deeper than 64" in answer.json()["detail"]


def test_brackets_in_a_string_are_no_depth(client: httpx.Client) -> None:
    answer = client.post("/run", json={"command": "echo '" + '[{"\\' * 200 + "' | wc -c"})

    assert answer.json()["stdout"].strip() == "801"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "no body"),
        (b"{", "not JSON"),
        (b'{"command": "\xff"}', "not JSON"),
        (b'{"command": "\\ud800"}', "not JSON"),
        (b'{"timeout_seconds": NaN, "command": "id"}', "timeout_seconds"),
        (b'{"timeout_seconds": 1e999, "command": "id"}', "timeout_seconds"),
        (b'{"command": "\\u0000"}', "command"),
        (b"null", "object"),
    ],
)
def test_what_is_no_json_of_ours_is_refused(client: httpx.Client, body: bytes, said: str) -> None:
    answer = client.post("/run", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code in {400, 422}
    assert said in answer.json()["detail"]


def test_another_type_of_body_is_refused(client: httpx.Client) -> None:
    answer = client.post("/run", content=b"command=id", headers={"Content-Type": "application/x-www-form-urlencoded"})

    assert answer.status_code == 415
    assert answer.json()["code"] == "unsupported_media_type"


def test_addresses_and_heads_are_bounded(client: httpx.Client) -> None:
    long_path = client.get("/" + "x" * 17_000)
    many = client.get("/sandboxes", headers={f"X-{i}": "y" for i in range(120)})
    large = client.get("/sandboxes", headers={"X-Large": "y" * 40_000})

    assert [answer.status_code for answer in (long_path, many, large)] == [414, 431, 431]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("limt=3", "did you mean limit?"),
        ("limit=0", "limit"),
        ("limit=1&limit=2", "given twice"),
        ("status=sleeping", "status"),
        ("metadata=x", "metadata"),
        ("%ff=1", "cannot be read"),
        ("&".join(f"a{i}=1" for i in range(200)), "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_query_is_named(client: httpx.Client, query: str, said: str) -> None:
    answer = client.get(f"/sandboxes?{query}")

    assert answer.status_code in {400, 422}
    assert said in answer.json()["detail"]


def test_unknown_addresses_and_methods_are_problems(client: httpx.Client, narrow: Served) -> None:
    nowhere = client.get("/nowhere")
    outside = client.get(f"{narrow.url}/nowhere")
    method = client.put("/sandboxes")
    health = client.post(f"{narrow.url}/livez")

    assert [answer.status_code for answer in (nowhere, outside, method, health)] == [404, 404, 405, 405]
    assert method.headers["allow"] == "GET, HEAD, POST"
    assert {answer.headers["content-type"] for answer in (nowhere, method)} == {"application/problem+json"}


def test_a_head_request_is_a_get_without_its_body(client: httpx.Client) -> None:
    answer = client.head("/sandboxes")

    assert (answer.status_code, answer.content) == (200, b"")


def test_a_request_id_is_taken_over_or_made(client: httpx.Client) -> None:
    given = client.get("/sandboxes", headers={"X-Request-ID": "trace-1:a/b"})
    insane = client.get("/sandboxes", headers={"X-Request-ID": "a b\tc"})
    failed = client.get("/sandboxes/sbx_0000000000000000", headers={"X-Request-ID": "mine"})

    assert given.headers["x-request-id"] == "trace-1:a/b"
    assert insane.headers["x-request-id"].startswith("req_")
    assert failed.json()["request_id"] == failed.headers["x-request-id"] == "mine"


def test_answers_carry_safe_headers_and_the_rate(client: httpx.Client) -> None:
    answer = client.get("/sandboxes")
    problem = client.get("/sandboxes/sbx_0000000000000000")

    assert problem.status_code == 404
    assert problem.headers["ratelimit-limit"] == "100000"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["ratelimit-limit"] == "100000"


def test_only_the_pages_that_were_named_may_call(client: httpx.Client) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}

    known = client.options("/run", headers={"Origin": "https://page.example", **asked})
    other = client.options("/run", headers={"Origin": "https://other.example", **asked})
    answer = client.get("/sandboxes/sbx_0000000000000000", headers={"Origin": "https://page.example"})

    assert known.headers["access-control-allow-origin"] == "https://page.example"
    assert "access-control-allow-origin" not in other.headers
    assert answer.headers["access-control-allow-origin"] == "https://page.example"
    assert answer.status_code == 404


def test_a_connection_is_used_again_after_a_problem(narrow: Served) -> None:
    with narrow.client("ann") as client:
        for _ in range(3):
            client.post("/run", json={"wrong": 1})
            assert client.get("/sandboxes").status_code == 200


def test_a_quota_that_is_used_up_says_when_to_come_again(make_settings: Callable[..., Settings]) -> None:
    served = Served(make_settings("bare", quota={"requests_per_minute": 5}))
    served.start()
    try:
        with served.client("ann") as ann:
            answers = [ann.get("/sandboxes") for _ in range(6)]
    finally:
        served.stop()

    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert answers[-1].headers["ratelimit-remaining"] == "0"
    assert answers[-1].json()["retryable"] is True
