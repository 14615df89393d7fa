"""The access log: a request that no route knows has its path, which forges nothing and gives no credential away."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from unit.gateway.whole import tell
from warren.gateway.middleware.request import show_path

if TYPE_CHECKING:
    from unit.gateway.whole import Whole


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/favicon.ico", "/favicon.ico"),
        ("/api/v1/sandbox", "/api/v1/sandbox"),
        ("/a\nstatus=200  b", "/a%0Astatus=200%20%20b"),
        ("/ü\x1b[31m", "/%C3%BC%1B%5B31m"),
        ("/\ud800", "/%3F"),
        ("/k/any-key/mpc", "/k/***/mpc"),
        ("/s/any.token/page", "/s/***/page"),
        ("//k/any-key/x", "//k/***/x"),
        ("/k//any-key/x", "/k//***/x"),
        ("/K/any-key/x", "/K/***/x"),
        ("/prefix/s/any.token", "/prefix/s/***"),
        ("/desks/keyjoint", "/desks/keyjoint"),
        ("/mcp/wrn_abc-DEF_1", "/mcp/***"),
        ("/x/eyJhbGciOi.eyJzdWIi.c2ln", "/x/***"),
        ("/" + "a" * 500, "/" + "a" * 199 + "***"),
    ],
)
def test_a_path_is_short_escaped_and_without_credentials(path: str, shown: str) -> None:
    assert show_path(path) == shown


def test_a_line_has_a_path_only_where_there_is_no_route(images_dir: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(whole: Whole) -> None:
        for path in ("/nowhere", "/api/v1/sandboxes", "/api/v1/sandboxes/sbx_00000000/files/secret.txt"):
            await whole.client.get(path)

    with caplog.at_level(logging.INFO, "warren.access"):
        tell(images_dir, story)

    lines = [vars(record) for record in caplog.records if record.msg == "request.finished"]
    assert [(line.get("path"), line["status"]) for line in lines] == [("/nowhere", 404), (None, 200), (None, 404)]
