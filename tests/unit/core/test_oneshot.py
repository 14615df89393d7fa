"""One-shots: files in, one execution, changed files out, and nothing is left but the audit record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.core.estate import ANN, wait_until
from unit.core.workshop import SHELL, Workshop
from warren.core.executions.executions import NewExecution
from warren.core.executions.oneshot import OneShot, OutputFile
from warren.domain.errors import InvalidRequest, QuotaExceeded, TooLarge
from warren.domain.records import ResourceUse
from warren.domain.values import Cause, ExecKind

if TYPE_CHECKING:
    from unit.core.workshop import Tell


def script(code: str, **fields: Any) -> OneShot:
    return OneShot(request=NewExecution(kind=ExecKind.SCRIPT, code=code), **fields)


async def wait_gone(shop: Workshop) -> None:
    await wait_until(lambda: not shop.transitions.live_sandboxes)
    assert await shop.rows() == {}
    assert await shop.handles() == set()


def test_files_go_in_changed_files_come_back_and_the_sandbox_is_gone(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        code = "open('out/a.txt', 'w').write(open('in.txt').read() + open('out/b.txt').read()); print('done')"
        done = await shop.oneshots.run(ANN, script(code, files={"in.txt": b"one ", "out/b.txt": b"two"}))
        assert done.execution.result is not None
        assert done.execution.result.stdout == b"done\n"
        assert done.files == (OutputFile("out/a.txt", "created", b"one two"),)
        assert done.files_complete
        await wait_gone(shop)
        (entry,) = await shop.finishes(done.execution.id)
        assert entry.details["cause"] == "exited"
        assert await shop.audited("sandbox.delete") == ["ok"]

    tell(story)


def test_a_single_file_and_the_environment_reach_a_command(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        shot = OneShot(
            request=NewExecution(kind=SHELL, code="cat a/b; echo $WHO $HOW", env={"HOW": "well"}),
            files={"a/b": b"content\n"},
            env={"WHO": "ann"},
        )
        done = await shop.oneshots.run(ANN, shot)
        assert done.execution.result is not None
        assert done.execution.result.stdout == b"content\nann well\n"
        assert done.files == ()

    tell(story)


def test_what_comes_back_is_bounded_and_says_so(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        code = "for n in range(5): open(f'f{n}', 'wb').write(bytes(1000))\nimport os; os.symlink('nowhere', 'link')"
        done = await shop.oneshots.run(ANN, script(code, max_files=3))
        assert [file.path for file in done.files] == ["f0", "f1", "f2"]
        assert not done.files_complete
        done = await shop.oneshots.run(ANN, script(code, max_bytes=2500))
        assert [file.path for file in done.files] == ["f0", "f1"]
        assert not done.files_complete

    tell(story)


def test_a_program_that_fails_is_a_result_and_leaves_nothing(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        done = await shop.oneshots.run(ANN, script("import os; os.kill(os.getpid(), 9)"))
        assert done.execution.result is not None
        assert done.execution.result.cause is Cause.KILLED
        with pytest.raises(InvalidRequest):
            await shop.oneshots.run(ANN, script("1", files={"../out": b""}))
        await wait_gone(shop)

    tell(story)


def test_a_caller_who_leaves_takes_the_sandbox_along(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        scope = anyio.CancelScope()

        async def call() -> None:
            with scope:
                await shop.oneshots.run(ANN, script("import time\nwhile True: time.sleep(0.01)"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await wait_until(lambda: shop.executions.under_way)
            scope.cancel()
        await wait_gone(shop)
        assert await shop.audited("execution.finish") == ["ok"]

    tell(story)


def test_many_at_once_count_against_the_quota_while_they_live(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        outputs: list[bytes] = []
        refused: list[QuotaExceeded] = []

        async def call(number: int) -> None:
            try:
                done = await shop.oneshots.run(ANN, script(f"print({number})"))
            except QuotaExceeded as error:
                refused.append(error)
            else:
                assert done.execution.result is not None
                outputs.append(done.execution.result.stdout)

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(call, number)
        assert len(outputs) == len(set(outputs)) >= 3
        assert len(outputs) + len(refused) == 6
        await wait_gone(shop)

    tell(story, own=ResourceUse(sandboxes=3))


def test_what_a_one_shot_cannot_keep_is_refused(tell: Tell) -> None:
    async def story(shop: Workshop) -> None:
        for fields in ({"background": True}, {"idempotency_key": "k"}):
            with pytest.raises(InvalidRequest):
                await shop.oneshots.run(ANN, OneShot(request=NewExecution(code="1", **fields)))
        with pytest.raises(TooLarge):
            await shop.oneshots.run(ANN, script("1", files={str(n): b"" for n in range(1001)}))
        assert await shop.rows() == {}

    tell(story)
