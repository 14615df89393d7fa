"""Executions after `kill -9` of the service: found running, finished or lost, and each recorded once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.core.estate import ANN
from unit.core.workshop import SHELL, Workshop
from warren.core.agent.client import AgentClient
from warren.core.executions.executions import NewExecution
from warren.core.policy.policy import Policy
from warren.domain.errors import Conflict
from warren.domain.records import AuditEntry
from warren.domain.values import Cause, ExecKind, ExecRequest, Handle, new_id
from warren.engines.bare.engine import BareEngine
from warren.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    Meanwhile = Callable[[], Awaitable[None]]
    After = Callable[[Workshop], Awaitable[None]]

PROGRAM = os.path.join(os.path.dirname(__file__), "doomed.py")
WAITS = "echo began; read < gate; echo ended"


class Crash:
    """A service that was killed, and what it had been doing."""

    def __init__(self, data_dir: str, images_dir: str) -> None:
        self.data_dir = data_dir
        self.images_dir = images_dir
        self.engine = BareEngine(data_dir, allow=True)
        self.sandboxes: list[str] = []
        self.executions: list[str] = []

    def happen(self, *stories: dict[str, str]) -> None:
        """Let a service begin these, and kill it."""
        environment = {"PYTHONPATH": os.pathsep.join(["tests", "src"]), "PATH": os.defpath}
        with subprocess.Popen(
            [sys.executable, PROGRAM, self.data_dir, self.images_dir, json.dumps(stories)],
            stdout=subprocess.PIPE,
            env=environment,
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        for told in json.loads(line):
            self.sandboxes.append(told["sandbox"])
            self.executions.append(told["execution"])

    @contextlib.asynccontextmanager
    async def agent(self, number: int = 0) -> Any:
        """Reach a sandbox as another service would."""
        async with AgentClient(await self.engine.connect(Handle("bare", self.sandboxes[number]))) as agent:
            yield agent

    async def open_gate(self, number: int = 0) -> None:
        """Let an execution that waits go on, and wait for its end."""
        async with self.agent(number) as agent:
            await agent.run(ExecRequest(id=new_id("exe"), kind=ExecKind.SHELL, code="echo > gate"))
            async for _ in agent.attach(self.executions[number]):
                """To its end."""

    def recover(self, after: After, meanwhile: Meanwhile | None = None) -> None:
        """Do something while there is no service, then tell a story in the next one."""

        async def tell() -> None:
            if meanwhile is not None:
                await meanwhile()
            shop = Workshop(self.data_dir, self.images_dir, Policy(image="python"))
            with anyio.fail_after(60):
                async with shop.working():
                    await after(shop)
                    assert await shop.store.verify()

        anyio.run(tell)


@pytest.fixture
def crash(tmp_path: Path, images_dir: str) -> Iterator[Crash]:
    crash = Crash(str(tmp_path), images_dir)
    yield crash

    async def clean() -> None:
        async for handle in crash.engine.handles():
            await crash.engine.destroy(handle)

    anyio.run(clean)


@pytest.mark.parametrize("how", ["foreground", "background"])
def test_what_was_running_is_followed_to_its_end(crash: Crash, how: str) -> None:
    crash.happen({"how": how, "code": WAITS})

    async def after(shop: Workshop) -> None:
        (sandbox_id,), (execution_id,) = crash.sandboxes, crash.executions
        found = await shop.executions.get(ANN, sandbox_id, execution_id)
        assert found.result is None
        assert shop.executions.under_way == 1
        assert (await shop.run(sandbox_id, "echo > gate", kind=SHELL)).ok
        events = [event async for event in await shop.executions.events(ANN, sandbox_id, execution_id)]
        assert events[-1].result is not None
        done = await shop.finished(execution_id)
        assert done.result is not None
        assert (done.result.cause, done.result.stdout) == (Cause.EXITED, b"began\nended\n")
        (entry,) = await shop.finishes(execution_id)
        assert (entry.subject, entry.request_id) == ("ann", "req_1")

    crash.recover(after)


def test_what_ended_without_a_service_is_found_finished_and_recorded_once(crash: Crash) -> None:
    crash.happen({"how": "foreground", "code": WAITS})

    async def after(shop: Workshop) -> None:
        (execution_id,) = crash.executions
        done = await shop.executions.get(ANN, crash.sandboxes[0], execution_id)
        assert done.result is not None
        assert done.result.stdout == b"began\nended\n"
        assert len(await shop.finishes(execution_id)) == 1

    crash.recover(after, crash.open_gate)
    crash.recover(after)


def test_what_was_recorded_before_is_left_as_it_is(crash: Crash) -> None:
    crash.happen({"how": "finished", "code": "echo done"}, {"how": "finished", "code": "echo done"})

    async def after(shop: Workshop) -> None:
        for sandbox_id, execution_id in zip(crash.sandboxes, crash.executions, strict=True):
            done = await shop.executions.get(ANN, sandbox_id, execution_id)
            assert done.result is not None
            assert done.result.stdout == b"done\n"
            assert len(await shop.finishes(execution_id)) == 1

    crash.recover(after)


@pytest.mark.parametrize("storage", ["persistent", "ephemeral"])
def test_what_was_lost_with_its_sandbox_says_so_in_the_audit_record(crash: Crash, storage: str) -> None:
    crash.happen({"how": "background", "code": WAITS, "storage": storage})

    async def die() -> None:
        path = os.path.join(crash.data_dir, "bare", crash.sandboxes[0], "record.json")
        with open(path, encoding="utf-8") as record:  # noqa: ASYNC230 - a few bytes
            os.kill(json.load(record)["pid"], signal.SIGKILL)

    async def after(shop: Workshop) -> None:
        (execution_id,) = crash.executions
        (entry,) = await shop.finishes(execution_id)
        assert entry.details["cause"] == "lost"
        if storage == "persistent":
            done = await shop.executions.get(ANN, crash.sandboxes[0], execution_id)
            assert done.result is not None
            assert done.result.cause is Cause.LOST
            assert "when the service came back" in str(done.result.hint)

    crash.recover(after, die)


def test_an_execution_that_only_the_agent_knows_is_adopted(crash: Crash) -> None:
    crash.happen({"how": "finished", "code": "true"})
    unknown, no_id = new_id("exe"), "not-an-execution"

    async def run_unseen() -> None:
        async with crash.agent() as agent:
            for execution_id in (unknown, no_id):
                await agent.run(ExecRequest(id=execution_id, kind=ExecKind.SHELL, code="echo unseen"))

    async def after(shop: Workshop) -> None:
        done = await shop.executions.get(ANN, crash.sandboxes[0], unknown)
        assert done.result is not None
        assert done.result.stdout == b"unseen\n"
        assert len(await shop.finishes(unknown)) == 1
        page = await shop.executions.list(ANN, crash.sandboxes[0])
        assert page.total == 3
        assert no_id not in {one.id for one in page.items}

    crash.recover(after, run_unseen)


def test_an_agent_that_claims_anothers_execution_does_not_get_it(crash: Crash) -> None:
    crash.happen({"how": "background", "code": WAITS}, {"how": "finished", "code": "true"})

    async def claim() -> None:
        async with crash.agent(1) as agent:
            await agent.run(ExecRequest(id=crash.executions[0], kind=ExecKind.SHELL, code="echo forged"))
        await crash.open_gate(0)

    async def after(shop: Workshop) -> None:
        done = await shop.executions.get(ANN, crash.sandboxes[0], crash.executions[0])
        assert done.result is not None
        assert done.result.stdout == b"began\nended\n"

    crash.recover(after, claim)


def test_a_crash_between_the_audit_entry_and_the_record_adds_no_second_entry(crash: Crash) -> None:
    crash.happen({"how": "foreground", "code": WAITS})

    async def audit_by_hand() -> None:
        await crash.open_gate()
        store = SqliteStore(crash.data_dir)
        await store.open()
        await store.append(
            AuditEntry(at=1.0, action="execution.finish", outcome="ok", execution_id=crash.executions[0])
        )
        await store.close()

    async def after(shop: Workshop) -> None:
        (entry,) = await shop.finishes(crash.executions[0])
        assert entry.at == 1.0
        assert (await shop.finished(crash.executions[0])).result is not None

    crash.recover(after, audit_by_hand)


def test_an_idempotency_key_waits_for_what_an_earlier_service_began(crash: Crash) -> None:
    crash.happen({"how": "foreground", "code": WAITS, "key": "k"})

    async def after(shop: Workshop) -> None:
        new = NewExecution(kind=SHELL, code=WAITS, idempotency_key="k")
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                again = await shop.executions.run(ANN, crash.sandboxes[0], new)
                assert again.id == crash.executions[0]
                assert again.result is not None
                assert again.result.stdout == b"began\nended\n"

            tasks.start_soon(ask)
            assert (await shop.run(crash.sandboxes[0], "echo > gate", kind=SHELL)).ok

    crash.recover(after)


def test_a_service_that_closes_leaves_the_background_to_the_next(tmp_path: Path, images_dir: str) -> None:
    async def tell() -> None:
        first = Workshop(str(tmp_path), images_dir, Policy(image="python"))
        async with first.working():
            sandbox = await first.create()
            assert (await first.run(sandbox.id, "mkfifo gate", kind=SHELL)).ok
            execution = await first.executions.start(ANN, sandbox.id, NewExecution(kind=SHELL, code=WAITS))
        second = Workshop(str(tmp_path), images_dir, Policy(image="python"))
        try:
            async with second.working():
                assert second.executions.under_way == 1
                assert (await second.run(sandbox.id, "echo > gate", kind=SHELL)).ok
                done = await second.finished(execution.id)
                assert done.result is not None
                assert done.result.stdout == b"began\nended\n"
        finally:
            await second.clean()

    anyio.run(tell)


def test_what_runs_in_a_sandbox_of_another_engine_is_not_lost(crash: Crash, tmp_path: Path) -> None:
    crash.happen({"how": "background", "code": WAITS, "key": "once"})
    again = NewExecution(kind=SHELL, code=WAITS, background=True, idempotency_key="once")

    async def serve_elsewhere() -> None:
        (sandbox_id,), (execution_id,) = crash.sandboxes, crash.executions
        engine = BareEngine(str(tmp_path / "elsewhere"), allow=True)
        shop = Workshop(crash.data_dir, crash.images_dir, Policy(image="python"), engine)
        async with shop.working():
            listed = await shop.executions.list(ANN, sandbox_id)
            assert execution_id in {one.id for one in listed.items if one.result is None}
            for use in (
                lambda: shop.executions.kill(ANN, sandbox_id, execution_id),
                lambda: shop.executions.events(ANN, sandbox_id, execution_id),
                lambda: shop.executions.start(ANN, sandbox_id, again),
            ):
                with pytest.raises(Conflict, match="another engine"):
                    await use()
            assert await shop.finishes(execution_id) == []

    async def after(shop: Workshop) -> None:
        await crash.open_gate()
        done = await shop.finished(crash.executions[0])
        assert done.result is not None
        assert done.result.stdout == b"began\nended\n"

    crash.recover(after, serve_elsewhere)
