from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import warren
from e2e.sdk.scripted import HANG_UP, RENDER, SANDBOX, Answer, ScriptedServer, problem
from warren import AsyncClient, Retries

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

IMAGES = Answer(200, {"items": []})
QUICK = Retries(most=2, longest_s=0.05)


async def test_a_service_is_asked_again_when_it_says_and_not_before() -> None:
    with ScriptedServer(problem(503, "overloaded", retry_after=1), IMAGES) as server:
        began = time.monotonic()
        async with AsyncClient(server.url) as client:
            assert await client.images() == ()

    assert time.monotonic() - began >= 1
    assert len(server.asked) == 2


async def test_a_wait_that_is_too_long_is_told_at_once() -> None:
    with ScriptedServer(problem(429, "quota_exceeded", retry_after=3600)) as server:
        async with AsyncClient(server.url) as client:
            with pytest.raises(warren.QuotaExceeded, match="not now") as caught:
                await client.images()

    assert (caught.value.retry_after_s, caught.value.request_id, len(server.asked)) == (3600, "req_1", 1)


async def test_it_gives_up_in_the_end() -> None:
    with ScriptedServer(*[problem(503, "store_error", retry_after=0)] * 3) as server:
        async with AsyncClient(server.url, retries=QUICK) as client:
            with pytest.raises(warren.StoreError):
                await client.images()

    assert len(server.asked) == 3


async def test_a_sandbox_is_made_once_however_often_it_is_asked_for() -> None:
    with ScriptedServer(HANG_UP, problem(503, "store_error", retry_after=0), Answer(201, SANDBOX)) as server:
        async with AsyncClient(server.url, retries=QUICK) as client:
            sandbox = await client.sandboxes.create()

    assert sandbox.id == "sbx_00000000"
    keys = {asked.headers["Idempotency-Key"] for asked in server.asked}
    assert (len(server.asked), len(keys)) == (3, 1)


async def test_what_may_not_be_done_twice_is_asked_once() -> None:
    with ScriptedServer(HANG_UP, HANG_UP, problem(503, "store_error", retry_after=0)) as server:
        async with AsyncClient(server.url, retries=QUICK) as client:
            kernels = client.sandboxes.at("sbx_00000000").kernels
            with pytest.raises(warren.ServiceUnreachable, match="see what was done"):
                await kernels.rollback()
            with pytest.raises(warren.ServiceUnreachable):
                await client.run("1")
            with pytest.raises(warren.StoreError):
                await kernels.create("other")

    assert [asked.path.rpartition("/")[2] for asked in server.asked] == ["rollback", "run", "kernels"]


async def test_what_was_refused_before_it_began_is_asked_again() -> None:
    refused = problem(429, "quota_exceeded", retry_after=0)
    with ScriptedServer(refused, Answer(200, {"cells_back": 1})) as server:
        async with AsyncClient(server.url, retries=QUICK) as client:
            assert await client.sandboxes.at("sbx_00000000").kernels.rollback() == 1


async def test_a_delete_whose_answer_was_lost_is_done() -> None:
    with ScriptedServer(HANG_UP, problem(404, "not_found", retryable=False)) as server:
        async with AsyncClient(server.url, retries=QUICK) as client:
            await client.sandboxes.at("sbx_00000000").delete()

    assert [asked.method for asked in server.asked] == ["DELETE", "DELETE"]


async def test_an_upload_begins_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    told: list[int] = []
    with ScriptedServer(problem(503, "overloaded", retry_after=0), HANG_UP, Answer(204)) as server:
        async with AsyncClient(server.url, retries=QUICK) as client:
            files = client.sandboxes.at("sbx_00000000").files
            await files.write("to", tmp_path / "file", progress=lambda done, _total: told.append(done))

    assert [len(asked.body) for asked in server.asked] == [100_000] * 3
    assert told == [100_000] * 3


async def test_what_can_be_read_once_is_sent_once() -> None:
    with ScriptedServer(problem(503, "overloaded", retry_after=0)) as server:
        async with AsyncClient(server.url, retries=QUICK) as client:
            with pytest.raises(warren.Overloaded):
                await client.sandboxes.at("sbx_00000000").files.write("to", iter([b"a", b"b"]))

    assert server.asked[0].body == b"ab"


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    with ScriptedServer(Answer(308, None, {"Location": "https://elsewhere.example/"})) as server:
        async with AsyncClient(server.url, "wrn_secret") as client:
            with pytest.raises(warren.NotUnderstood, match="sends this client on"):
                await client.images()


async def test_what_is_no_service_is_told() -> None:
    with ScriptedServer(Answer(200, "hello"), Answer(502), Answer(200)) as server:
        async with AsyncClient(server.url, retries=QUICK) as client:
            with pytest.raises(warren.NotUnderstood):
                await client.sandboxes.list()
            with pytest.raises(warren.Error, match="proxy"):
                await client.images()
            with pytest.raises(warren.NotUnderstood, match="no Warren service"):
                await client.images()


async def test_a_render_is_waited_for_over_a_stream_that_ends_too_early() -> None:
    done = {**RENDER, "status": "done", "finished_at": "2026-01-01T00:00:01.000+00:00"}
    answers = (Answer(200), Answer(200, RENDER), Answer(200), Answer(200, done))
    with ScriptedServer(*answers) as server:
        async with AsyncClient(server.url, retries=QUICK) as client:
            assert (await client.renders.wait("rnd_00000000")).status == "done"

    assert [asked.path.rpartition("/")[2] for asked in server.asked] == ["events", "rnd_00000000"] * 2


async def test_a_render_that_nobody_tells_of_is_not_waited_for_without_end() -> None:
    with ScriptedServer(*[Answer(200), Answer(200, RENDER)] * 3) as server:
        async with AsyncClient(server.url, retries=QUICK) as client:
            with pytest.raises(warren.ServiceUnreachable, match="ended before the render did"):
                await client.renders.wait("rnd_00000000")
