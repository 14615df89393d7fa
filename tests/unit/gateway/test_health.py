"""What the service says of its health, in good days and bad."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from unit.gateway.whole import Whole, tell
from warren import __version__
from warren.gateway.api.auth import Auth
from warren.gateway.middleware.request import RequestMiddleware
from warren.gateway.ops.health import Health
from warren.gateway.ops.metrics import Metrics

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from warren.domain.values import Image


@pytest.fixture(autouse=True)
def _image(python_image: Image) -> None:
    assert python_image.name == "python"


def test_all_is_well(images_dir: str) -> None:
    async def story(whole: Whole) -> None:
        assert await whole.get("/livez") == (200, {"status": "ok"})
        assert await whole.get("/readyz") == (200, {"status": "healthy", "reasons": [], "caveats": [], "gpus": []})
        assert await whole.get("/healthz") == (200, {"status": "healthy", "version": __version__, "reasons": []})

    tell(images_dir, story)


def test_health_speaks_for_several_products(images_dir: str) -> None:
    async def story(whole: Whole) -> None:
        await whole.client.post("/api/v1/sandboxes", json={})
        status, body = await whole.get("/health")
        # The version of the API that Onyx's clients look for there; ours is in /healthz.
        ours = {"status": "ok", "message": None, "version": "0.5.0", "session_count": 0, "max_sessions": 9}
        assert (status, {name: body[name] for name in ours}) == (200, ours)
        assert body["features"] == {"pip_packages": False}

    tell(images_dir, story, capacity={"active": 9})


def test_a_service_that_is_not_up_is_alive_but_not_ready(images_dir: str) -> None:
    async def story(whole: Whole) -> None:
        assert (await whole.get("/livez"))[0] == 200
        status, body = await whole.get("/readyz")
        assert (status, body["status"]) == (503, "degraded")
        assert body["reasons"] == ["store: store_error", "engine: failed"]
        status, body = await whole.get("/health")
        assert (status, body["status"]) == (200, "error")
        assert "store_error" in body["message"]

    tell(images_dir, story, is_open=False)


def test_a_service_that_drains_is_not_ready(images_dir: str) -> None:
    async def story(whole: Whole) -> None:
        whole.service.drain()
        status, body = await whole.get("/readyz")
        assert (status, body["reasons"]) == (503, ["stopping: no new work is taken"])
        assert (await whole.get("/healthz"))[0] == 503

    tell(images_dir, story)


def test_an_engine_that_does_not_answer_is_a_reason_that_names_no_folder(images_dir: str) -> None:
    async def story(whole: Whole) -> None:
        home = os.path.join(whole.folder, "bare")
        os.rename(home, home + "-away")
        try:
            status, body = await whole.get("/readyz")
            assert (status, body["reasons"]) == (503, ["engine: failed"])
        finally:
            os.rename(home + "-away", home)

    tell(images_dir, story)


def test_a_store_that_is_closed_is_a_reason(images_dir: str) -> None:
    async def story(whole: Whole) -> None:
        await whole.service.store.close()
        status, body = await whole.get("/readyz")
        assert (status, body["reasons"]) == (503, ["store: store_error"])
        assert (await whole.get("/livez"))[0] == 200
        await whole.service.store.open()

    tell(images_dir, story)


def test_the_details_say_how_everything_is(images_dir: str) -> None:
    async def story(whole: Whole) -> None:
        await whole.client.post("/api/v1/sandboxes", json={})
        status, body = await whole.get("/healthz/details")
        assert (status, body["status"], body["engine"]) == (200, "healthy", {"name": "bare", "layers": []})
        assert body["sandboxes"]["active"] == 1
        assert body["uptime_seconds"] >= 0
        assert body["audit"]["last"]["seq"] >= 1
        assert body["admission"]["creates"] == {"under_way": 0, "waiting": 0}

    tell(images_dir, story)


async def _nowhere(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise AssertionError


def test_a_storm_of_questions_costs_the_store_nothing(images_dir: str) -> None:
    async def story(whole: Whole) -> None:
        service, asked = whole.service, []
        health = Health(service, Auth(service.keys), Metrics(service), _nowhere, looked_s=3600)
        transport = httpx.ASGITransport(RequestMiddleware(health))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asked.append((await client.get("/health")).json())
            await service.store.close()
            asked += [(await client.get("/health")).json() for _ in range(20)]
            await service.store.open()
        assert {answer["status"] for answer in asked} == {"ok"}

    tell(images_dir, story)


def test_concurrent_probes_share_one_check(images_dir: str) -> None:
    async def story(whole: Whole) -> None:
        service, heard = whole.service, []
        health = Health(service, Auth(service.keys), Metrics(service), _nowhere, looked_s=3600)
        await service.store.close()

        async def ask() -> None:
            heard.append(await health.reasons())

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
        await service.store.open()
        assert heard == [["store: store_error"]] * 3

    tell(images_dir, story)


def test_only_reading_is_possible(images_dir: str) -> None:
    async def story(whole: Whole) -> None:
        for path in ("/livez", "/metrics"):
            answer = await whole.client.post(path)
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
            assert (await whole.client.head(path)).status_code == 200

    tell(images_dir, story)


@pytest.mark.parametrize(("is_open", "status"), [(False, 401), (True, 200)])
def test_metrics_need_no_key_where_the_operator_says_so(images_dir: str, is_open: bool, status: int) -> None:
    async def story(whole: Whole) -> None:
        assert (await whole.client.get("/metrics")).status_code == status
        assert (await whole.client.get("/healthz/details")).status_code == 401

    tell(images_dir, story, serve={"auth": True, "open_metrics": is_open})
