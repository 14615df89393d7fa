from __future__ import annotations

import json

import httpx
import pytest

import warren
from warren.domain.errors import BY_CODE, Error, InvalidRequest, NotFound, Overloaded, RequestError
from warren.sdk.address import Address
from warren.sdk.failures import build_error, build_stream_error, explain, parse_wait


def problem(code: str, status: int, **more: object) -> bytes:
    body = {"code": code, "status": status, "detail": "what went wrong", "request_id": "req_1", "retryable": False}
    return json.dumps(body | more).encode()


@pytest.mark.parametrize("code", BY_CODE)
def test_every_code_is_its_class_again(code: str) -> None:
    error = build_error(BY_CODE[code].status, {"retry-after": "3"}, problem(code, BY_CODE[code].status))

    assert type(error) is BY_CODE[code]
    assert (str(error), error.code, error.status) == ("what went wrong", code, BY_CODE[code].status)
    assert (error.request_id, error.retryable, error.retry_after_s) == ("req_1", False, 3.0)


@pytest.mark.parametrize(
    ("code", "status", "cls"),
    [
        ("invalid_fields", 422, InvalidRequest),
        ("method_not_allowed", 405, RequestError),
        ("of_next_year", 418, RequestError),
        ("of_next_year", 503, Overloaded),
        ("internal_error", 500, Error),
    ],
)
def test_a_code_that_is_not_known_is_what_its_status_says(code: str, status: int, cls: type[Error]) -> None:
    error = build_error(status, {}, problem(code, status))

    assert (type(error), error.code, error.status) == (cls, code, status)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"text"', b'{"detail": 3}', b"\xff"])
def test_what_a_proxy_answers_is_an_error_too(body: bytes) -> None:
    error = build_error(502, {"x-request-id": "req_2"}, body)

    assert "proxy" in str(error)
    assert (error.status, error.request_id) == (502, "req_2")


def test_without_a_key_the_sentence_says_where_it_is_set() -> None:
    body = problem("unauthenticated", 401)

    assert "WARREN_API_KEY" in str(build_error(401, {}, body, has_key=False))
    assert str(build_error(401, {}, body, has_key=True)) == "what went wrong"


def test_a_stream_ends_with_the_same_errors() -> None:
    error = build_stream_error(json.loads(problem("sandbox_lost", 502)))

    assert (type(error), error.request_id) == (warren.SandboxLost, "req_1")
    assert type(build_stream_error({})) is Error


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("12", 12), ("-1", None), ("soon", None), (None, None)])
def test_retry_after_is_read(text: str | None, seconds: float | None) -> None:
    assert parse_wait(text) == seconds
    assert (parse_wait("9" * 40) or 0) <= 86_400


def test_every_error_of_the_service_is_public() -> None:
    assert [cls.__name__ for cls in BY_CODE.values() if getattr(warren, cls.__name__, None) is not cls] == []


def test_an_answer_to_head_has_its_code_and_sentence_in_a_header() -> None:
    headers = {"content-type": "application/problem+json", "warren-error": "not_a_file: %C3%BC: 100%25 a folder"}
    error, bare = build_error(409, headers, b""), build_error(404, {"content-type": "application/problem+json"}, b"")

    assert (str(error), error.code) == ("ü: 100% a folder", "not_a_file")
    assert isinstance(bare, NotFound)
    assert str(bare) == "the service refused it with 404"


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate", "SSL_CERT_FILE"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "write http://"),
        ("All connection attempts failed", "warren serve"),
    ],
)
def test_who_cannot_connect_is_told_what_to_do(why: str, remedy: str) -> None:
    error = explain(httpx.ConnectError(why), Address.parse("https://sandboxes.example.com"))

    assert remedy in str(error)
