"""Each dialect has a page and an OpenAPI document of its own, as long as it is served."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from api.served import Served
from warren.gateway.app import DIALECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.gateway.dialects.dialect import Dialect
    from warren.settings import Settings


def ask(served: Served, path: str) -> Any:
    with served.client("anonymous") as anonymous:
        return anonymous.get(f"{served.url}{path}")


def refs(value: Any) -> Iterator[str]:
    """Yield every reference in a document."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from refs(each)
    elif isinstance(value, list):
        for each in value:
            yield from refs(each)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_document_has_every_operation_and_all_that_it_refers_to(bare: Served, dialect: Dialect) -> None:
    answer = ask(bare, f"/openapi/{dialect.name}.json")
    document = answer.json()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    served = {(each.method, re.sub(r":\w+}", "}", each.path)) for each in dialect.operations}
    served |= {("GET", path) for path in dialect.shared_paths}
    assert "/health" in dialect.shared_paths
    names = [each["operationId"] for methods in document["paths"].values() for each in methods.values()]

    assert answer.headers["content-type"] == "application/json"
    assert (document["openapi"], document["info"]["title"]) == ("3.1.0", dialect.title)
    assert described == served
    assert len(names) == len(set(names))
    for ref in refs(document):
        kind, name = ref.removeprefix("#/components/").split("/")
        assert name in document["components"][kind], ref
    for response in document["components"]["responses"].values():
        assert list(response["content"]) == ["application/json"]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_page_shows_the_document_and_the_page_of_the_native_api_links_it(bare: Served, dialect: Dialect) -> None:
    page = ask(bare, f"/docs/api/{dialect.name}")

    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert f'data-document="/openapi/{dialect.name}.json"' in page.text
    assert 'href="/docs/api"' in page.text
    assert f'<a href="/docs/api/{dialect.name}">' in ask(bare, "/docs/api").text


def test_a_dialect_that_is_off_has_no_page_and_an_open_one_asks_for_no_key(
    make_settings: Callable[..., Settings],
) -> None:
    dialects = {"otari": {"enabled": False}, "onyx": {"open": True}}
    served = Served(make_settings("bare", dialects=dialects))
    served.start()
    try:
        for path in ("/docs/otari", "/docs/api/otari", "/openapi/otari.json", "/docs/api/none", "/openapi/none.json"):
            assert ask(served, path).status_code == 404, path
        assert "/docs/api/otari" not in ask(served, "/docs/api").text
        assert "security" not in ask(served, "/openapi/onyx.json").json()
        assert "security" in ask(served, "/openapi/chatui.json").json()
    finally:
        served.stop()


def test_without_documentation_no_dialect_has_any(make_settings: Callable[..., Settings]) -> None:
    served = Served(make_settings("bare", serve={"docs": False}))
    served.start()
    try:
        for dialect in DIALECTS:
            assert ask(served, f"/docs/api/{dialect.name}").status_code == 404
            assert ask(served, f"/openapi/{dialect.name}.json").status_code == 404
    finally:
        served.stop()
