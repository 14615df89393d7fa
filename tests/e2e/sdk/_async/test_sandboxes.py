from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import warren

if TYPE_CHECKING:
    from warren import AsyncClient, AsyncSandbox

pytestmark = pytest.mark.anyio


async def test_a_sandbox_is_removed_at_the_end_of_its_block(client: AsyncClient) -> None:
    async with client.sandbox(metadata={"of": "a block"}, memory_mb=256, env={"SECRET": "x"}) as sandbox:
        assert (sandbox.info.status, sandbox.info.memory_mb) == ("running", 256)
        assert sandbox.info.metadata == {"of": "a block"}
        assert (await sandbox.exec("echo $SECRET")).stdout == "x\n"

    with pytest.raises(warren.NotFound) as caught:
        await sandbox.refresh()
    assert (caught.value.code, caught.value.status) == ("not_found", 404)
    assert caught.value.request_id.startswith("req_")


async def test_a_block_that_fails_removes_its_sandbox_too(client: AsyncClient) -> None:
    made: list[str] = []

    async def fail() -> None:
        async with client.sandbox() as sandbox:
            made.append(sandbox.id)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

    assert made[0] not in [each.id for each in await client.sandboxes.list()]


async def test_a_sandbox_that_is_gone_already_is_no_error(client: AsyncClient) -> None:
    async with client.sandbox() as sandbox:
        await sandbox.delete()


async def test_sandboxes_are_found_and_listed(client: AsyncClient, sandbox: AsyncSandbox) -> None:
    async with client.sandbox(metadata={"team": "blue"}, session_key=f"of-{sandbox.id}") as other:
        again = await client.sandboxes.create(session_key=f"of-{sandbox.id}", metadata={"team": "blue"})

        assert again.id == other.id
        assert (await client.sandboxes.get(other.id)).info.metadata == {"team": "blue"}
        page = await client.sandboxes.list(metadata={"team": "blue"}, status="running")
        assert [each.id for each in page] == [other.id]
        page = await client.sandboxes.list(limit=1, status=["running", "stopped"])
        assert (len(page), page.total >= 2) == (1, True)
        found = [each.id async for each in client.sandboxes.all()]
        assert {sandbox.id, other.id} <= set(found)
        assert len(found) == len(set(found))


async def test_a_sandbox_by_its_id_is_not_asked_about(client: AsyncClient, sandbox: AsyncSandbox) -> None:
    same = client.sandboxes.at(sandbox.id)

    with pytest.raises(LookupError, match="refresh"):
        _ = same.info
    assert (await same.refresh()).id == sandbox.id
    assert same.info.status == "running"


async def test_an_id_that_is_none_reaches_nothing_else(client: AsyncClient) -> None:
    for wrong in ("../images", "sbx_/../../images", "", "?x", "a b"):
        with pytest.raises(warren.Error):
            await client.sandboxes.at(wrong).usage()


async def test_a_sandbox_is_stopped_resumed_changed_and_measured(fresh: AsyncSandbox) -> None:
    await fresh.files.write("kept", "kept")

    assert (await fresh.stop()).status == fresh.info.status == "stopped"
    assert (await fresh.resume()).status == "running"
    assert await fresh.files.read_text("kept") == "kept"
    changed = await fresh.update(metadata={"a": "b"}, idle_timeout_seconds=600)
    assert (changed.metadata, changed.idle_timeout_seconds) == ({"a": "b"}, 600)
    usage = await fresh.usage()
    assert usage.pids is None or usage.pids > 0


async def test_kernels_are_made_copied_undone_and_ended(fresh: AsyncSandbox) -> None:
    await fresh.run("x = 1")
    await fresh.run("x = 2")

    copy = await fresh.kernels.fork(to="copy")
    back = await fresh.kernels.rollback(cells=1)
    other = await fresh.kernels.create("other")

    assert (copy.name, other.name, back) == ("copy", "other", 1)
    assert (await fresh.run("x", kernel="copy")).value == "2"
    assert (await fresh.run("x")).value == "1"
    assert {kernel.name for kernel in await fresh.kernels.list()} == {"main", "copy", "other"}
    await fresh.kernels.delete("other")
    await fresh.kernels.restart()
    assert (await fresh.run("x")).cause == "error"


async def test_what_the_service_refuses_is_an_error_of_ours(client: AsyncClient) -> None:
    with pytest.raises(warren.InvalidRequest, match="memory_mb") as caught:
        await client.sandboxes.create(memory_mb=1)
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("invalid_fields", 422, False)
    with pytest.raises(warren.NotFound, match="image"):
        await client.sandboxes.create(image="nothing-of-this-name")
