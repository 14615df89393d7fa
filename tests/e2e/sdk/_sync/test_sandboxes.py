# Made from tests/e2e/sdk/_async/test_sandboxes.py by `make sdk`: change that instead.
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import warren

if TYPE_CHECKING:
    from warren import Client, Sandbox


def test_a_sandbox_is_removed_at_the_end_of_its_block(client: Client) -> None:
    with client.sandbox(metadata={"of": "a block"}, memory_mb=256, env={"SECRET": "x"}) as sandbox:
        assert (sandbox.info.status, sandbox.info.memory_mb) == ("running", 256)
        assert sandbox.info.metadata == {"of": "a block"}
        assert (sandbox.exec("echo $SECRET")).stdout == "x\n"

    with pytest.raises(warren.NotFound) as caught:
        sandbox.refresh()
    assert (caught.value.code, caught.value.status) == ("not_found", 404)
    assert caught.value.request_id.startswith("req_")


def test_a_block_that_fails_removes_its_sandbox_too(client: Client) -> None:
    made: list[str] = []

    def fail() -> None:
        with client.sandbox() as sandbox:
            made.append(sandbox.id)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert made[0] not in [each.id for each in client.sandboxes.list()]


def test_a_sandbox_that_is_gone_already_is_no_error(client: Client) -> None:
    with client.sandbox() as sandbox:
        sandbox.delete()


def test_sandboxes_are_found_and_listed(client: Client, sandbox: Sandbox) -> None:
    with client.sandbox(metadata={"team": "blue"}, session_key=f"of-{sandbox.id}") as other:
        again = client.sandboxes.create(session_key=f"of-{sandbox.id}", metadata={"team": "blue"})

        assert again.id == other.id
        assert (client.sandboxes.get(other.id)).info.metadata == {"team": "blue"}
        page = client.sandboxes.list(metadata={"team": "blue"}, status="running")
        assert [each.id for each in page] == [other.id]
        page = client.sandboxes.list(limit=1, status=["running", "stopped"])
        assert (len(page), page.total >= 2) == (1, True)
        found = [each.id for each in client.sandboxes.all()]
        assert {sandbox.id, other.id} <= set(found)
        assert len(found) == len(set(found))


def test_a_sandbox_by_its_id_is_not_asked_about(client: Client, sandbox: Sandbox) -> None:
    same = client.sandboxes.at(sandbox.id)

    with pytest.raises(LookupError, match="refresh"):
        _ = same.info
    assert (same.refresh()).id == sandbox.id
    assert same.info.status == "running"


def test_an_id_that_is_none_reaches_nothing_else(client: Client) -> None:
    for wrong in ("../images", "sbx_/../../images", "", "?x", "a b"):
        with pytest.raises(warren.Error):
            client.sandboxes.at(wrong).usage()


def test_a_sandbox_is_stopped_resumed_changed_and_measured(fresh: Sandbox) -> None:
    fresh.files.write("kept", "kept")

    assert (fresh.stop()).status == fresh.info.status == "stopped"
    assert (fresh.resume()).status == "running"
    assert fresh.files.read_text("kept") == "kept"
    changed = fresh.update(metadata={"a": "b"}, idle_timeout_seconds=600)
    assert (changed.metadata, changed.idle_timeout_seconds) == ({"a": "b"}, 600)
    usage = fresh.usage()
    assert usage.pids is None or usage.pids > 0


def test_kernels_are_made_copied_undone_and_ended(fresh: Sandbox) -> None:
    fresh.run("x = 1")
    fresh.run("x = 2")

    copy = fresh.kernels.fork(to="copy")
    back = fresh.kernels.rollback(cells=1)
    other = fresh.kernels.create("other")

    assert (copy.name, other.name, back) == ("copy", "other", 1)
    assert (fresh.run("x", kernel="copy")).value == "2"
    assert (fresh.run("x")).value == "1"
    assert {kernel.name for kernel in fresh.kernels.list()} == {"main", "copy", "other"}
    fresh.kernels.delete("other")
    fresh.kernels.restart()
    assert (fresh.run("x")).cause == "error"


def test_what_the_service_refuses_is_an_error_of_ours(client: Client) -> None:
    with pytest.raises(warren.InvalidRequest, match="memory_mb") as caught:
        client.sandboxes.create(memory_mb=1)
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("invalid_fields", 422, False)
    with pytest.raises(warren.NotFound, match="image"):
        client.sandboxes.create(image="nothing-of-this-name")
