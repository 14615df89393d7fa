"""Store checks: executions and their results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from warren.domain.records import Owner
from warren.domain.values import Cause, ExecKind, ExecResult, State
from warren.testing.store_subject import make_execution, make_result

if TYPE_CHECKING:
    from warren.domain.records import Execution
    from warren.testing.store_subject import StoreSubject


def _finished(execution: Execution, **fields: object) -> Execution:
    result = make_result(id=execution.id, **fields)
    return replace(execution, finished_at=execution.started_at + 1, result=result)


async def check_an_execution_comes_back_as_it_was(subject: StoreSubject) -> None:
    """Running or finished, with every field of its result, bytes and half surrogate pairs too."""
    sandbox = await subject.add()
    running = make_execution(sandbox, kind=ExecKind.SHELL, kernel=None, code="echo \ud800\n\x00ü", background=True)
    finished = _finished(make_execution(sandbox))
    bare = make_execution(
        sandbox, result=ExecResult(id="exe_1", exit_code=None, cause=Cause.LOST, state=State.NONE), finished_at=1.5
    )
    for execution in (running, finished, bare):
        await subject.store.record(execution)

    assert await subject.store.execution(running.id) == running
    assert await subject.store.execution(finished.id) == finished
    assert await subject.store.execution(bare.id) == bare
    assert await subject.store.execution("exe_unknown") is None


async def check_a_result_is_added_to_its_execution(subject: StoreSubject) -> None:
    """Recorded again with its result, an execution is finished, and it was one."""
    sandbox = await subject.add()
    execution = make_execution(sandbox)
    await subject.store.record(execution)
    await subject.store.record(_finished(execution, stdout=b"done"))
    kept = await subject.store.execution(execution.id)
    counted = await subject.get(sandbox.id)

    assert kept == _finished(execution, stdout=b"done")
    assert counted.executions == 1


async def check_the_first_result_stays(subject: StoreSubject) -> None:
    """A later result, or the start recorded after the end, changes nothing."""
    sandbox = await subject.add()
    execution = make_execution(sandbox)
    first = _finished(execution, stdout=b"first")
    await subject.store.record(first)
    await subject.store.record(_finished(execution, stdout=b"second"))
    await subject.store.record(execution)
    counted = await subject.get(sandbox.id)

    assert await subject.store.execution(execution.id) == first
    assert counted.executions == 1


async def check_one_of_many_results_is_kept(subject: StoreSubject) -> None:
    """Of many concurrent results one is kept, complete."""
    sandbox = await subject.add()
    execution = make_execution(sandbox)
    results = [_finished(execution, stdout=b"%d" % number, stderr=b"%d" % number) for number in range(20)]
    async with anyio.create_task_group() as group:
        group.start_soon(subject.store.record, execution)
        for each in results:
            group.start_soon(subject.store.record, each)

    assert await subject.store.execution(execution.id) in results


async def check_a_new_execution_counts_and_is_a_use(subject: StoreSubject) -> None:
    """Each new one is counted; the last use moves to when it started, and never back."""
    sandbox = await subject.add()
    for later in (7, 3):
        await subject.store.record(make_execution(sandbox, started_at=sandbox.active_at + later))
    kept = await subject.store.get(sandbox.id)

    assert kept == replace(sandbox, executions=2, active_at=sandbox.active_at + 7)


async def check_an_execution_of_a_removed_sandbox_is_not_kept(subject: StoreSubject) -> None:
    """An execution recorded after its sandbox was removed is dropped, without an error: no request could read it."""
    sandbox = await subject.add()
    execution = make_execution(sandbox)
    await subject.store.record(execution)
    await subject.store.remove(sandbox.id)
    await subject.store.record(_finished(execution))

    assert await subject.store.execution(execution.id) is None
    assert await subject.store.running() == ()


async def check_executions_are_listed_newest_first_in_pages(subject: StoreSubject) -> None:
    """Only the sandbox's own, in the order they started, with the total."""
    sandbox, other = await subject.add(), await subject.add()
    made = [make_execution(sandbox, started_at=1000.0 + number) for number in range(5)]
    for execution in (made[2], made[0], made[4], made[1], made[3], make_execution(other)):
        await subject.store.record(execution)
    pages = [await subject.store.executions(sandbox.id, offset=offset, limit=2) for offset in (0, 2, 4)]

    assert [item.id for page in pages for item in page.items] == [each.id for each in reversed(made)]
    assert [(page.total, page.offset, page.limit) for page in pages] == [(5, 0, 2), (5, 2, 2), (5, 4, 2)]
    assert (await subject.store.executions("sbx_unknown")).total == 0


async def check_running_are_those_without_a_result(subject: StoreSubject) -> None:
    """Of one sandbox or of all."""
    one, two = await subject.add(), await subject.add()
    first, second, done = make_execution(one), make_execution(two), make_execution(one)
    for execution in (first, second, done, _finished(done)):
        await subject.store.record(execution)

    assert await subject.store.running(one.id) == (first,)
    assert {each.id for each in await subject.store.running()} == {first.id, second.id}
    assert await subject.store.running("sbx_unknown") == ()


async def check_the_bytes_of_executions_are_counted(subject: StoreSubject) -> None:
    """Counted for each owner and for all, after their end; removed with their sandbox."""
    one, two = await subject.add(), await subject.add(owner=Owner("else", "where"))
    assert await subject.store.recorded(None) == 0
    running = make_execution(one, code="ü" * 10_000)
    await subject.store.record(running)
    for execution in (_finished(running, stdout=bytes(30_000)), _finished(make_execution(two), stderr=bytes(5_000))):
        await subject.store.record(execution)
        await subject.store.record(execution)
    ended, other = await subject.store.recorded(one.owner), await subject.store.recorded(two.owner)

    assert 50_000 < ended < 60_000
    assert 5_000 < other < 10_000
    assert await subject.store.recorded(None) == ended + other
    await subject.store.remove(one.id)
    assert await subject.store.recorded(one.owner) == 0
    assert await subject.store.recorded(None) == other
