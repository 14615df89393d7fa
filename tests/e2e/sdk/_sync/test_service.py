# Made from tests/e2e/sdk/_async/test_service.py by `make sdk`: change that instead.
from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import httpx
import pytest

import warren
from warren import Client, Retries

if TYPE_CHECKING:
    from e2e.serving import RunningService


def test_a_service_says_how_it_is(client: Client) -> None:
    health = client.health()
    client.ping()

    assert (health.is_healthy, health.version, health.reasons) == (True, warren.__version__, ())
    assert client.is_ready()
    assert (client.health_details())["engine"]["name"] == "bare"
    assert "warren_" in client.metrics()
    assert "python" in {image.name for image in client.images() if image.is_default}


def test_the_audit_record_is_read(client: Client) -> None:
    with client.sandbox() as sandbox:
        page = client.audit(sandbox_id=sandbox.id, action="sandbox.create", limit=5)

    (row,) = page
    assert (row.sandbox_id, row.outcome, page.total) == (sandbox.id, "ok", 1)


def test_a_socket_of_this_machine_is_an_address_and_needs_no_key(service: RunningService) -> None:
    with Client(f"unix:{service.folder}/warren.sock") as client, client.sandbox() as sandbox:
        assert (sandbox.run("1 + 1")).value == "2"
        assert [type(event).__name__ for event in sandbox.stream("1")] == ["Started", "Display", "Result"]


def test_the_address_of_the_api_is_good_too(service: RunningService, url: str) -> None:
    with Client(f"{url}/api/v1/", service.key) as client:
        assert client.images()


def test_without_a_key_it_says_what_to_do(url: str) -> None:
    with Client(url) as client:
        with pytest.raises(warren.Unauthenticated, match="set WARREN_API_KEY or give api_key="):
            client.images()


def test_a_wrong_key_is_told_by_the_service(url: str) -> None:
    with Client(url, "wrn_wrong") as client:
        with pytest.raises(warren.Unauthenticated, match="not valid"):
            client.images()


def test_without_a_service_it_says_what_to_do(tmp_path: object) -> None:
    for address in ("http://127.0.0.1:9", f"unix:{tmp_path}/none.sock"):
        with Client(address, retries=Retries(most=1, longest_s=0.01)) as client:
            with pytest.raises(warren.ServiceUnreachable, match="start one with `warren serve`, or set WARREN_URL"):
                client.images()
            terminal = client.sandboxes.at("sbx_aaaaaaaaaaaa").terminal()
            with pytest.raises(warren.ServiceUnreachable, match="start one with `warren serve`"):
                contextlib.ExitStack().enter_context(terminal)


def test_a_closed_client_says_so(url: str) -> None:
    client = Client(url)
    client.close()

    with pytest.raises(warren.Error, match="closed"):
        client.images()


def test_another_transport_can_be_given(service: RunningService, url: str) -> None:
    class Counting(httpx.HTTPTransport):
        count = 0

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            Counting.count += 1
            return super().handle_request(request)

    with Client(url, service.key, transport=Counting()) as client:
        client.images()

    assert Counting.count == 1
