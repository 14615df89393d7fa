"""Store checks: callbacks, which programs of sandboxes may call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warren.domain.records import Callbacks

if TYPE_CHECKING:
    from warren.testing.store_subject import StoreSubject


def _make(sandbox_id: str) -> Callbacks:
    return Callbacks(
        sandbox_id=sandbox_id,
        url="https://example.com/call?a=\u20ac",
        token="s3cret \ud800",  # noqa: S106 - of nothing
        tools={"look_up": "Looks \u00fcp.", "send": ""},
        timeout_s=2.5,
        port=40_001,
        peer="10.0.0.7",
    )


async def check_callbacks_come_back_as_they_were_and_the_last_count(subject: StoreSubject) -> None:
    """Stored with every field, also after the store is opened again; a second registration replaces the first."""
    sandbox, other = await subject.add(), await subject.add()
    for each in (sandbox, other):
        await subject.store.keep_callbacks(_make(each.id))
    last = replace(_make(other.id), tools={}, url="http://b/", port=1)
    await subject.store.keep_callbacks(last)
    async with subject.reopened() as restarted:
        kept = await restarted.callbacks()

    assert {each.sandbox_id: each for each in kept} == {sandbox.id: _make(sandbox.id), other.id: last}


async def check_callbacks_go_with_their_sandbox(subject: StoreSubject) -> None:
    """No token outlives its sandbox, and none is stored for a removed one."""
    sandbox = await subject.add()
    await subject.store.keep_callbacks(_make(sandbox.id))
    await subject.store.remove(sandbox.id)
    await subject.store.keep_callbacks(_make(sandbox.id))

    assert await subject.store.callbacks() == ()


async def check_callbacks_do_not_say_their_secrets(subject: StoreSubject) -> None:
    """Its repr, which may be logged by mistake, has neither the token nor the address."""
    sandbox = await subject.add()
    await subject.store.keep_callbacks(_make(sandbox.id))
    (kept,) = await subject.store.callbacks()

    assert "s3cret" not in repr(kept)
    assert "example.com" not in repr(kept)
