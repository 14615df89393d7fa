"""Kernels as their callers see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.core.estate import ANN, BOB, READER
from warren.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound

if TYPE_CHECKING:
    from unit.core.workshop import Tell, Workshop


def test_kernels_are_made_forked_rolled_back_restarted_and_deleted(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox, kernels = await shop.create(), shop.kernels
        made = await kernels.create(ANN, sandbox.id, "work")
        assert (made.name, made.busy) == ("work", False)
        await shop.run(sandbox.id, "x = 1", kernel="work")
        copied = await kernels.fork(ANN, sandbox.id, "work", "copy")
        assert copied.name == "copy"
        await shop.run(sandbox.id, "x = 2", kernel="copy")
        assert (await shop.run(sandbox.id, "print(x)", kernel="work")).stdout == b"1\n"
        assert await kernels.rollback(ANN, sandbox.id, "copy") == 1
        assert (await shop.run(sandbox.id, "print(x)", kernel="copy")).stdout == b"1\n"
        await kernels.restart(ANN, sandbox.id, "copy")
        assert not (await shop.run(sandbox.id, "x", kernel="copy")).ok
        assert {"work", "copy"} <= {kernel.name for kernel in await kernels.list(READER, sandbox.id)}
        await kernels.delete(ANN, sandbox.id, "work")
        assert "work" not in {kernel.name for kernel in await kernels.list(ANN, sandbox.id)}
        for verb in ("create", "fork", "rollback", "restart", "delete"):
            assert await shop.audited(f"kernel.{verb}") == ["ok"]

    tell(story)


def test_what_cannot_be_done_to_a_kernel_is_refused_and_audited(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox, kernels = await shop.create(), shop.kernels
        await kernels.create(ANN, sandbox.id, "work")
        with pytest.raises(Conflict):
            await kernels.create(ANN, sandbox.id, "work")
        with pytest.raises(NotFound):
            await kernels.delete(ANN, sandbox.id, "other")
        for name in ("", "a b", "../x", "x" * 65):
            with pytest.raises(InvalidRequest):
                await kernels.create(ANN, sandbox.id, name)
            with pytest.raises(InvalidRequest):
                await kernels.fork(ANN, sandbox.id, "work", name)
        with pytest.raises(InvalidRequest, match="cells"):
            await kernels.rollback(ANN, sandbox.id, "work", 0)
        with pytest.raises(NotFound):
            await kernels.list(BOB, sandbox.id)
        with pytest.raises(Forbidden):
            await kernels.restart(READER, sandbox.id, "work")
        assert await shop.audited("kernel.create") == ["ok", "conflict"]
        assert await shop.audited("kernel.restart") == ["forbidden"]

    tell(story)


def test_a_stopped_sandbox_has_no_kernels_and_is_not_started_to_look(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create()
        await shop.run(sandbox.id, "x = 1")
        await shop.sandboxes.stop(ANN, sandbox.id)
        assert await shop.kernels.list(ANN, sandbox.id) == ()
        assert (await shop.sandboxes.get(ANN, sandbox.id)).status == "stopped"

    tell(story)
