"""Store checks: background renders, from their start to their expiry."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict
from warren.domain.records import Owner, Render, RenderStatus
from warren.domain.values import new_id
from warren.testing.store_subject import OTHER, OWNER
from warren.testing.subject import refused

if TYPE_CHECKING:
    from warren.testing.store_subject import StoreSubject


def make_render(owner: Owner = OWNER, created_at: float = 1.0, expires_at: float = 1e12) -> Render:
    """Build a render that has just begun."""
    return Render(
        id=new_id("rnd"),
        owner=owner,
        status=RenderStatus.QUEUED,
        version="v2",
        name="déck",
        created_at=created_at,
        expires_at=expires_at,
    )


async def check_a_render_comes_back_as_it_was(subject: StoreSubject) -> None:
    """Found with every field, by id, and newest first only in the list of its owner; also after the store reopens."""
    first, theirs = make_render(created_at=1.5), make_render(OTHER)
    for render in (first, theirs):
        await subject.store.add_render(render)
    second = dataclasses.replace(make_render(created_at=2.5), slides=3, degraded=((2, "canvas \ud800"),))
    second = dataclasses.replace(second, missing=(("assets/a \ud800.png", 2),), script_errors=("what\n", "\x00"))
    await subject.store.add_render(second)
    done = dataclasses.replace(
        second, status=RenderStatus.DONE, finished_at=3.5, file_id="f", reason="r", error="why\n", expires_at=9.5
    )
    assert await subject.store.keep_render(done) is True
    async with subject.reopened() as later:
        for store in (subject.store, later):
            assert [await store.render(each.id) for each in (first, done, theirs)] == [first, done, theirs]
            assert await store.renders(OWNER) == (done, first)
            assert await store.unfinished_renders() == (first, theirs)
    assert await subject.store.render("unknown") is None


async def check_a_render_that_was_removed_is_not_kept_again(subject: StoreSubject) -> None:
    """A render may end after it was deleted, and no id is reused."""
    render = make_render()
    await subject.store.add_render(render)
    await refused(Conflict, subject.store.add_render(render))

    assert await subject.store.remove_render(render.id) is True
    assert await subject.store.remove_render(render.id) is False
    assert await subject.store.keep_render(render) is False
    assert await subject.store.render(render.id) is None


async def check_renders_whose_time_is_over_go_once_they_are_done(subject: StoreSubject) -> None:
    """A running one stays, also after its expiry."""
    over, unfinished, fresh = make_render(expires_at=5.0), make_render(expires_at=5.0), make_render(expires_at=9.0)
    for render in (over, unfinished, fresh):
        await subject.store.add_render(render)
    for render in (over, fresh):
        await subject.store.keep_render(dataclasses.replace(render, finished_at=4.0))

    assert await subject.store.remove_renders(expired_at=6.0) == 1
    assert await subject.store.render(over.id) is None
    assert await subject.store.render(unfinished.id) == unfinished
    assert await subject.store.render(fresh.id) is not None
