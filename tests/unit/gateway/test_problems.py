"""Every failure has one shape, and tells nothing of our inside."""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import orjson
import pytest
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from warren.core.concurrency.admission import Rate, RateExceeded
from warren.domain import errors
from warren.domain.errors import Error, NotFound, Overloaded, QuotaExceeded, StoreError, Unauthenticated
from warren.gateway.api.bodies import parse_body
from warren.gateway.api.problems import HTTP_CODES, InvalidFields, build_problem, respond
from warren.gateway.middleware.problems import ProblemMiddleware

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "docs", "reference", "errors.md")
RATE = Rate(False, 0, 2.5, limit=60, window_s=60, reset_s=59.2)


def all_errors() -> list[type[Error]]:
    found: list[type[Error]] = []
    pending: list[type[Error]] = [Error]
    while pending:
        each = pending.pop()
        pending += each.__subclasses__()
        if each.__module__ == errors.__name__ and hasattr(each, "code"):
            found.append(each)
    return found


def body_of(exc: BaseException) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(bytes(respond(exc, "req_1").body))
    return body


def test_the_code_and_the_sentence_are_in_a_header_too_for_the_answer_to_head() -> None:
    plain = respond(NotFound("there is no such sandbox"), "req_1")
    odd = respond(NotFound("no ü at 100%\r\nSet-Cookie: a=b " + "x" * 500), "req_1")

    assert plain.headers["warren-error"] == "not_found: there is no such sandbox"
    assert odd.headers["warren-error"].startswith("not_found: no %C3%BC at 100%25%0D%0ASet-Cookie: a=b xxx")
    assert len(odd.headers["warren-error"]) < 400


def test_a_problem_has_all_of_its_members() -> None:
    response = respond(NotFound("there is no such sandbox"), "req_1")

    assert response.media_type == "application/problem+json"
    assert response.status_code == 404
    assert orjson.loads(bytes(response.body)) == {
        "type": "/docs#not_found",
        "title": "Not found",
        "status": 404,
        "detail": "there is no such sandbox",
        "code": "not_found",
        "request_id": "req_1",
        "retryable": False,
        "error": {"code": "NOT_FOUND", "message": "there is no such sandbox"},
    }


@pytest.mark.parametrize("error", all_errors(), ids=lambda each: each.code)
def test_each_error_keeps_its_code_and_status_and_can_be_found_by_it(error: type[Error]) -> None:
    problem = build_problem(error("a sentence"))

    assert (problem.code, problem.status, problem.retryable) == (error.code, error.status, error.retryable)
    assert errors.by_code(error.code) is error


@pytest.mark.parametrize("error", all_errors(), ids=lambda each: each.code)
def test_the_tree_in_the_docstring_has_each_error(error: type[Error]) -> None:
    assert re.search(rf"─ {error.__name__} +{error.status}\n", errors.__doc__ or "")


def test_the_page_of_errors_has_each_code_with_its_status_and_what_to_do() -> None:
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    listed = re.findall(r"^\| \[`(\w+)`\]\(#(\w+)\) \| (\d+) \| (yes|no) \|$", page, re.MULTILINE)
    known = {each.code: (each.status, each.retryable) for each in all_errors()}
    known |= {code: (status, False) for code, status in HTTP_CODES.items()}

    assert {code: (int(status), again == "yes") for code, _, status, again in listed} == known
    assert all(code == anchor for code, anchor, _, _ in listed)
    sections = dict(re.findall(r"^## (\w+)\n\n(.+?)(?=\n\n## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert {code for code in known if len(sections.get(code, "")) < 40} == set()


@pytest.mark.parametrize(
    ("exc", "seconds"),
    [
        (QuotaExceeded("x", retry_after_s=2.1), "3"),
        (Overloaded("x", retry_after_s=0.1), "1"),
        (StoreError("x"), "1"),
        (errors.EngineUnavailable("x"), None),
        (errors.StartFailed("x"), None),
    ],
)
def test_what_may_do_well_later_says_when(exc: Error, seconds: str | None) -> None:
    assert respond(exc, "").headers.get("retry-after") == seconds


def test_a_rate_that_is_used_up_says_so_in_headers() -> None:
    headers = respond(RateExceeded("too many", RATE), "").headers

    assert headers["retry-after"] == "3"
    assert headers["ratelimit-limit"] == "60"
    assert headers["ratelimit-remaining"] == "0"
    assert headers["ratelimit-reset"] == "60"
    assert headers["ratelimit-policy"] == "60;w=60"


def test_a_401_says_how_to_log_in() -> None:
    assert respond(Unauthenticated("no"), "").headers["www-authenticate"].startswith("Bearer")
    assert respond(HTTPException(401), "").headers["www-authenticate"].startswith("Bearer")


def test_unexpected_errors_show_nothing_and_are_logged_without_what_the_user_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise KeyError("password=hunter2")

    with pytest.raises(KeyError) as caught:
        fail()
    with caplog.at_level(logging.ERROR):
        body = body_of(caught.value)

    (record,) = caplog.records
    assert (body["status"], body["code"]) == (500, "internal_error")
    assert "hunter2" not in str(body)
    assert (record.__dict__["request_id"], record.__dict__["error"]) == ("req_1", "KeyError")
    assert "test_problems.py" in record.__dict__["where"]
    assert "fail" in record.__dict__["where"]
    assert "hunter2" not in str(record.__dict__)
    assert record.exc_info is None


def test_a_failing_store_is_explained_to_the_operator_and_not_to_the_client(caplog: pytest.LogCaptureFixture) -> None:
    body = body_of(StoreError("/var/lib/warren/warren.db: disk full"))

    assert "warren.db" not in str(body)
    assert "warren.db" in caplog.records[0].__dict__["message_text"]


def test_what_task_groups_wrap_is_unwrapped() -> None:
    group = BaseExceptionGroup("outer", [ExceptionGroup("inner", [ValueError("x"), NotFound("gone")])])

    assert build_problem(group).detail == "gone"


def test_details_that_no_encoding_can_write_do_no_harm() -> None:
    assert body_of(NotFound("no file \ud800"))["detail"] == "no file ?"


def test_fields_are_named_each() -> None:
    class Limits(BaseModel):
        cpus: float = Field(gt=0)

    class Request(BaseModel):
        limits: Limits
        name: str

    with pytest.raises(InvalidFields) as caught:
        parse_body(Request, b'{"limits": {"cpus": -1}, "name": 5}')
    body = body_of(caught.value)

    assert (body["status"], body["code"]) == (422, "invalid_fields")
    assert [each["where"] for each in body["errors"]] == ["limits.cpus", "name"]
    assert body["detail"].startswith("limits.cpus: input should be greater than 0")


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Fail in the way that the path names."""
    assert receive is not None
    scope.setdefault("state", {}).update(request_id="req_7", rate=RATE)
    if scope["path"] == "/half":
        await send({"type": "http.response.start", "status": 200, "headers": []})
    raise {
        "/missing": NotFound("there is no such sandbox"),
        "/method": HTTPException(405, headers={"Allow": "GET, PUT"}),
        "/unknown": HTTPException(404),
    }.get(scope["path"], RuntimeError("inside"))


def client() -> httpx.AsyncClient:
    transport = httpx.ASGITransport(ProblemMiddleware(application))
    return httpx.AsyncClient(transport=transport, base_url="http://test")


def test_an_application_answers_with_problems_only() -> None:
    async def check() -> None:
        paths = ("/missing", "/method", "/unknown", "/broken")
        async with client() as http:
            answers = [await http.get(path) for path in paths]
        codes = [answer.json()["code"] for answer in answers]
        assert codes == ["not_found", "method_not_allowed", "not_found", "internal_error"]
        assert answers[1].headers["allow"] == "GET, PUT"
        assert {answer.json()["request_id"] for answer in answers} == {"req_7"}
        assert {answer.headers["ratelimit-limit"] for answer in answers} == {"60"}
        assert {answer.headers["content-type"] for answer in answers} == {"application/problem+json"}

    anyio.run(check)


def test_an_answer_that_breaks_half_way_is_cut_and_not_mended() -> None:
    async def check() -> None:
        async with client() as http:
            with pytest.raises(RuntimeError):
                await http.get("/half")

    anyio.run(check)


def test_problems_of_http_itself_keep_their_headers() -> None:
    problem = build_problem(HTTPException(405, headers={"Allow": "GET, PUT"}))

    assert (problem.code, problem.status, problem.headers["Allow"]) == ("method_not_allowed", 405, "GET, PUT")
    assert build_problem(HTTPException(418)).code == "invalid_request"
    assert build_problem(HTTPException(507)).code == "internal_error"
