"""Store checks: sandboxes, compare-and-set and lists."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio

from warren.domain.errors import Conflict, QuotaExceeded, StoreError
from warren.domain.lifecycle import Status
from warren.domain.records import SandboxQuery
from warren.domain.values import MIB, Limits, Storage
from warren.testing.store_subject import OTHER, OWNER, make_execution, make_sandbox
from warren.testing.subject import refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from warren.testing.store_subject import StoreSubject

RACERS = 50


async def outcomes(attempts: list[Callable[[], Awaitable[object]]]) -> list[object]:
    """Run attempts concurrently, and collect what each returned or raised."""
    found: list[object] = []

    async def attempt(make: Callable[[], Awaitable[object]]) -> None:
        try:
            found.append(await make())
        except (Conflict, QuotaExceeded) as exc:
            found.append(type(exc))

    async with anyio.create_task_group() as group:
        for each in attempts:
            group.start_soon(attempt, each)
    return found


async def check_a_sandbox_comes_back_as_it_was(subject: StoreSubject) -> None:
    """Every field is kept exactly, in any script and with half surrogate pairs."""
    sandbox = await subject.add(
        status=Status.STOPPED,
        reach="0" * 32,
        limits=Limits(memory_bytes=128 * MIB, cpus=0.3, checkpoints=3),
        storage=Storage.EPHEMERAL,
        env={"TOKEN": "s3crèt\n", "": ""},
        metadata={"ключ": "值", "half": "\ud800", "quote": "\"'%_"},
        session_key="a/b ü",
        idle_timeout_s=0.1,
        max_lifetime_s=3600.0,
        reason="idle",
    )

    assert await subject.store.get(sandbox.id) == sandbox
    assert await subject.store.find(OWNER, "a/b ü") == sandbox


async def check_a_store_has_an_identity_that_stays(subject: StoreSubject) -> None:
    """Two stores over the same data have the same one."""
    async with subject.reopened() as other:
        assert subject.store.identity
        assert other.identity == subject.store.identity


async def check_what_is_not_there_is_none(subject: StoreSubject) -> None:
    """An unknown id or session key is no error."""
    assert await subject.store.get("sbx_unknown") is None
    assert await subject.store.get("\ud800'; --") is None
    assert await subject.store.find(OWNER, "unknown") is None


async def check_an_id_is_used_once(subject: StoreSubject) -> None:
    """Adding the same id again is a conflict, for another owner too, and changes nothing."""
    sandbox = await subject.add()
    await refused(Conflict, subject.store.add(replace(sandbox, owner=OTHER, image="other")))

    assert await subject.store.get(sandbox.id) == sandbox


async def check_a_session_key_is_one_sandbox_of_an_owner(subject: StoreSubject) -> None:
    """The same owner's second sandbox of a session key is a conflict; another owner's is not."""
    mine, theirs = await subject.add(session_key="chat"), await subject.add(session_key="chat", owner=OTHER)
    await refused(Conflict, subject.store.add(make_sandbox(session_key="chat")))
    await subject.add()
    await subject.add()

    assert await subject.store.find(OWNER, "chat") == mine
    assert await subject.store.find(OTHER, "chat") == theirs


async def check_one_of_many_gets_a_session_key(subject: StoreSubject) -> None:
    """Of fifty concurrent adds with one session key exactly one succeeds, and it is the stored one."""
    attempts = [partial(subject.store.add, make_sandbox(session_key="race")) for _ in range(RACERS)]
    found = await outcomes(list(attempts))

    assert sorted(map(str, found)) == sorted(map(str, [None, *[Conflict] * (RACERS - 1)]))
    assert (await subject.store.list(SandboxQuery())).total == 1


async def check_a_session_key_is_free_after_removal(subject: StoreSubject) -> None:
    """A removed sandbox, or one that released its key, no longer conflicts."""
    first = await subject.add(session_key="chat")
    await subject.store.remove(first.id)
    second = await subject.add(session_key="chat")
    await subject.store.swap(replace(second, session_key=None, status=Status.DESTROYING), was=Status.RUNNING)

    await subject.add(session_key="chat")


async def check_swap_replaces_what_is_as_expected(subject: StoreSubject) -> None:
    """With the right status every field is replaced."""
    sandbox = await subject.add()
    changed = replace(
        sandbox,
        status=Status.STOPPING,
        limits=Limits(pids=99),
        metadata={"a": "b"},
        idle_timeout_s=5.0,
        changed_at=sandbox.changed_at + 1,
        reason="idle",
        session_key="new",
    )

    assert await subject.store.swap(changed, was=Status.RUNNING) is True
    assert await subject.store.get(sandbox.id) == changed


async def check_swap_leaves_what_is_not_as_expected(subject: StoreSubject) -> None:
    """With another status, or for a sandbox that is gone, nothing happens."""
    sandbox = await subject.add()

    assert await subject.store.swap(replace(sandbox, image="x"), was=Status.STOPPED) is False
    assert await subject.store.swap(make_sandbox(), was=Status.RUNNING) is False
    assert await subject.store.get(sandbox.id) == sandbox
    assert (await subject.store.list(SandboxQuery())).total == 1


async def check_one_of_many_wins_a_swap(subject: StoreSubject) -> None:
    """Of fifty concurrent swaps from the same status exactly one succeeds, and its value is stored."""
    sandbox = await subject.add()
    wanted = [replace(sandbox, status=Status.STOPPING, reason=str(number)) for number in range(RACERS)]
    winners: list[str | None] = []

    async def attempt(value: object) -> None:
        assert isinstance(value, type(sandbox))
        if await subject.store.swap(value, was=Status.RUNNING):
            winners.append(value.reason)

    async with anyio.create_task_group() as group:
        for value in wanted:
            group.start_soon(attempt, value)
    kept = await subject.get(sandbox.id)

    assert len(winners) == 1
    assert kept.reason == winners[0]


async def check_swap_keeps_what_others_count(subject: StoreSubject) -> None:
    """A swap with an old value neither sets the last use back nor the number of executions."""
    sandbox = await subject.add()
    await subject.store.record(make_execution(sandbox, started_at=sandbox.active_at + 5))
    await subject.store.swap(replace(sandbox, status=Status.STOPPING), was=Status.RUNNING)
    kept = await subject.get(sandbox.id)

    assert kept.executions == 1
    assert kept.active_at == sandbox.active_at + 5


async def check_swap_takes_no_other_sandboxes_session_key(subject: StoreSubject) -> None:
    """A session key stays one sandbox's also when a value is replaced."""
    await subject.add(session_key="mine")
    sandbox = await subject.add()
    await refused(Conflict, subject.store.swap(replace(sandbox, session_key="mine"), was=Status.RUNNING))

    assert await subject.store.get(sandbox.id) == sandbox


async def check_touch_never_goes_back(subject: StoreSubject) -> None:
    """The latest use counts, in any order of calls."""
    sandbox = await subject.add()
    await subject.store.touch(sandbox.id, sandbox.active_at + 9)
    await subject.store.touch(sandbox.id, sandbox.active_at + 3)
    await subject.store.touch("sbx_unknown", sandbox.active_at)
    kept = await subject.store.get(sandbox.id)

    assert kept == replace(sandbox, active_at=sandbox.active_at + 9)


async def check_remove_forgets_a_sandbox_and_its_executions(subject: StoreSubject) -> None:
    """Nothing of it is left, and removing it again is no error."""
    sandbox, other = await subject.add(), await subject.add()
    execution, kept = make_execution(sandbox), make_execution(other)
    for one in (execution, kept):
        await subject.store.record(one)
    await subject.store.remove(sandbox.id)
    await subject.store.remove(sandbox.id)

    assert await subject.store.get(sandbox.id) is None
    assert await subject.store.execution(execution.id) is None
    assert await subject.store.running() == (kept,)


async def check_sandboxes_are_listed_newest_first_in_pages(subject: StoreSubject) -> None:
    """Pages follow each other without gaps, and each knows the total."""
    made = [make_sandbox(created_at=1000.0 + number) for number in range(7)]
    for sandbox in (made[3], made[0], made[6], made[1], made[5], made[2], made[4]):
        await subject.store.add(sandbox)
    newest_first = tuple(reversed(made))
    pages = [await subject.store.list(SandboxQuery(offset=offset, limit=3)) for offset in (0, 3, 6, 9)]

    assert tuple(item for page in pages for item in page.items) == newest_first
    assert [len(page.items) for page in pages] == [3, 3, 1, 0]
    assert {(page.total, page.limit) for page in pages} == {(7, 3)}
    assert [page.offset for page in pages] == [0, 3, 6, 9]
    assert (await subject.store.list(SandboxQuery(offset=10**30, limit=10**30))).items == ()
    assert (await subject.store.list(SandboxQuery(limit=0))).total == 7


async def check_each_filter_of_a_list_holds(subject: StoreSubject) -> None:
    """Each filter alone, and several together, select exactly the matching ones."""
    made = {
        "plain": make_sandbox(),
        "other": make_sandbox(owner=OTHER, session_key="k"),
        "stopped": make_sandbox(status=Status.STOPPED, session_key="k"),
        "image": make_sandbox(image="r"),
        "labelled": make_sandbox(metadata={"team": "a", "env": "prod", "half": "\udfff"}),
        "labelled too": make_sandbox(metadata={"team": "a"}, status=Status.STOPPING),
    }
    names = {sandbox.id: name for name, sandbox in made.items()}
    for sandbox in made.values():
        await subject.store.add(sandbox)

    async def select(query: SandboxQuery) -> set[str]:
        page = await subject.store.list(query)
        assert page.total == len(page.items)
        return {names[item.id] for item in page.items}

    assert await select(SandboxQuery()) == set(made)
    assert await select(SandboxQuery(owner=OTHER)) == {"other"}
    assert await select(SandboxQuery(statuses=frozenset({Status.STOPPED, Status.STOPPING}))) == {
        "stopped",
        "labelled too",
    }
    assert await select(SandboxQuery(image="r")) == {"image"}
    assert await select(SandboxQuery(session_key="k")) == {"other", "stopped"}
    assert await select(SandboxQuery(metadata={"team": "a"})) == {"labelled", "labelled too"}
    assert await select(SandboxQuery(metadata={"team": "a", "env": "prod"})) == {"labelled"}
    assert await select(SandboxQuery(metadata={"half": "\udfff"})) == {"labelled"}
    assert await select(SandboxQuery(metadata={"team": "%"})) == set()
    assert await select(SandboxQuery(owner=OWNER, session_key="k", image="data")) == {"stopped"}


async def check_a_closed_store_says_so(subject: StoreSubject) -> None:
    """Closing twice is fine; a later call raises and does not hang."""
    other = subject.make_store()
    await other.open()
    await other.ping()
    await other.close()
    await other.close()

    await refused(StoreError, other.ping())
    await refused(StoreError, other.get("sbx_unknown"))


async def check_everything_is_there_after_a_restart(subject: StoreSubject) -> None:
    """Two stores over the same data see each other's writes."""
    sandbox = await subject.add(session_key="chat", metadata={"a": "b"})
    async with subject.reopened() as other:
        assert await other.find(OWNER, "chat") == sandbox
        assert await other.swap(replace(sandbox, status=Status.STOPPING), was=Status.RUNNING)
        kept = await subject.get(sandbox.id)

        assert kept.status is Status.STOPPING
        assert not await subject.store.swap(sandbox, was=Status.RUNNING)
