from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import httpx
import pytest

import warren
from warren import AsyncClient, Retries

if TYPE_CHECKING:
    from e2e.serving import RunningService

pytestmark = pytest.mark.anyio


async def test_a_service_says_how_it_is(client: AsyncClient) -> None:
    health = await client.health()
    await client.ping()

    assert (health.is_healthy, health.version, health.reasons) == (True, warren.__version__, ())
    assert await client.is_ready()
    assert (await client.health_details())["engine"]["name"] == "bare"
    assert "warren_" in await client.metrics()
    assert "python" in {image.name for image in await client.images() if image.is_default}


async def test_the_audit_record_is_read(client: AsyncClient) -> None:
    async with client.sandbox() as sandbox:
        page = await client.audit(sandbox_id=sandbox.id, action="sandbox.create", limit=5)

    (row,) = page
    assert (row.sandbox_id, row.outcome, page.total) == (sandbox.id, "ok", 1)


async def test_a_socket_of_this_machine_is_an_address_and_needs_no_key(service: RunningService) -> None:
    async with AsyncClient(f"unix:{service.folder}/warren.sock") as client, client.sandbox() as sandbox:
        assert (await sandbox.run("1 + 1")).value == "2"
        assert [type(event).__name__ async for event in sandbox.stream("1")] == ["Started", "Display", "Result"]


async def test_the_address_of_the_api_is_good_too(service: RunningService, url: str) -> None:
    async with AsyncClient(f"{url}/api/v1/", service.key) as client:
        assert await client.images()


async def test_without_a_key_it_says_what_to_do(url: str) -> None:
    async with AsyncClient(url) as client:
        with pytest.raises(warren.Unauthenticated, match="set WARREN_API_KEY or give api_key="):
            await client.images()


async def test_a_wrong_key_is_told_by_the_service(url: str) -> None:
    async with AsyncClient(url, "wrn_wrong") as client:
        with pytest.raises(warren.Unauthenticated, match="not valid"):
            await client.images()


async def test_without_a_service_it_says_what_to_do(tmp_path: object) -> None:
    for address in ("http://127.0.0.1:9", f"unix:{tmp_path}/none.sock"):
        async with AsyncClient(address, retries=Retries(most=1, longest_s=0.01)) as client:
            with pytest.raises(warren.ServiceUnreachable, match="start one with `warren serve`, or set WARREN_URL"):
                await client.images()
            terminal = client.sandboxes.at("sbx_aaaaaaaaaaaa").terminal()
            with pytest.raises(warren.ServiceUnreachable, match="start one with `warren serve`"):
                await contextlib.AsyncExitStack().enter_async_context(terminal)


async def test_a_closed_client_says_so(url: str) -> None:
    client = AsyncClient(url)
    await client.close()

    with pytest.raises(warren.Error, match="closed"):
        await client.images()


async def test_another_transport_can_be_given(service: RunningService, url: str) -> None:
    class Counting(httpx.AsyncHTTPTransport):
        count = 0

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            Counting.count += 1
            return await super().handle_async_request(request)

    async with AsyncClient(url, service.key, transport=Counting()) as client:
        await client.images()

    assert Counting.count == 1
