"""Jobs: stored files in, one execution, stored files out; in a sandbox of its own, or in one that is there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.core.estate import ANN, BOB, wait_until
from unit.core.workshop import Workshop, work
from warren.blobs.filesystem import Blobs
from warren.core.executions.executions import NewExecution
from warren.core.executions.jobs import Job, Jobs
from warren.core.files.stored import StoredFiles
from warren.core.policy.policy import Policy
from warren.domain.errors import NotFound
from warren.domain.values import ExecKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from warren.domain.records import StoredFile

    Story = Callable[["Bench"], Awaitable[None]]


class Bench:
    """A workshop with a place for files."""

    def __init__(self, shop: Workshop, folder: Path) -> None:
        self.shop = shop
        self.files = StoredFiles(shop.store, Blobs(str(folder)), shop.audit, Policy(own_file_bytes=1 << 20))
        self.jobs = Jobs(shop.sandboxes, shop.executions, shop.oneshots, self.files)

    async def add(self, content: bytes) -> StoredFile:
        file = await self.files.add(ANN, "f", content, ttl_s=60)
        assert file is not None
        return file

    async def read(self, file: StoredFile) -> bytes:
        async with self.files.read(ANN, file) as content:
            return b"".join([piece async for piece in content])


@pytest.fixture
def tell(tmp_path: Path, images_dir: str) -> Callable[[Story], None]:
    def told(story: Story, **choices: Any) -> None:
        async def use(shop: Workshop) -> None:
            await story(Bench(shop, tmp_path / "blobs"))

        work(str(tmp_path), images_dir, use, **choices)

    return told


def job(code: str, **fields: Any) -> Job:
    return Job(**{"request": NewExecution(kind=ExecKind.SCRIPT, code=code), "ttl_s": 60.0, **fields})


def test_files_go_in_and_what_is_new_comes_out(tell: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        one, two, large = [await bench.add(content) for content in (b"one", b"two", b"x" * 500_000)]
        code = (
            "import os\n"
            "text = open('a/one').read() + open('two').read() + str(os.path.getsize('large'))\n"
            "open('two', 'w').write('two')\n"
            "open('hidden', 'w').write('h')\n"
            "os.symlink('two', 'link')\n"
            "os.mkfifo('pipe')\n"
            "os.remove('large')\n"
            "open('out', 'w').write(text)"
        )
        inputs = {"a/one": one, "two": two, "large": large}
        done = await bench.jobs.run(ANN, job(code, inputs=inputs, hidden=frozenset({"hidden"})))
        assert done.execution.result is not None
        assert done.execution.result.stderr == b""
        ((path, out),) = done.files
        assert (path, out.name, done.unkept, done.is_complete) == ("out", "out", (), True)
        assert await bench.read(out) == b"onetwo500000"
        await wait_until(lambda: not bench.shop.transitions.live_sandboxes)

    tell(story)


def test_a_job_in_a_sandbox_that_is_there_leaves_it_there(tell: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        sandbox = await bench.shop.create()
        file = await bench.add(b"one")
        await bench.jobs.stage(ANN, sandbox.id, {"f": file})
        code = "open('g', 'w').write(open('f').read())\nopen('f', 'a').close()"
        done = await bench.jobs.run(ANN, job(code, sandbox_id=sandbox.id, inputs={"g": file}))
        assert done.files == ()
        async with bench.jobs.follow(ANN, job("print(open('g').read())", sandbox_id=sandbox.id)) as followed:
            events = [event.data async for event in followed.events() if event.kind == "stdout"]
            assert (await followed.finish()).execution.result is not None
        assert events == [b"one\n"]
        with pytest.raises(NotFound):
            await bench.jobs.run(BOB, job("1", sandbox_id=sandbox.id))

    tell(story)


def test_what_does_not_fit_is_named_and_the_rest_is_kept(tell: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        code = f"open('a', 'w').write('1')\nopen('big', 'wb').write(bytes({1 << 20}))"
        done = await bench.jobs.run(ANN, job(code))
        assert ([path for path, _ in done.files], done.unkept) == (["a"], ("big",))

    tell(story)


def test_who_leaves_a_job_leaves_nothing(tell: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        async with bench.jobs.follow(ANN, job("import time\nopen('f', 'w')\nprint(1)\ntime.sleep(100)")) as followed:
            async for event in followed.events():
                if event.kind == "stdout":
                    break
        with anyio.move_on_after(1.0):
            await bench.jobs.run(ANN, job("import time\ntime.sleep(100)"))
        await wait_until(lambda: not bench.shop.transitions.live_sandboxes)
        assert await bench.files.list(ANN) == ()

    tell(story)


def test_an_input_whose_content_is_gone_leaves_no_sandbox(tell: Callable[[Story], None], tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        file = await bench.add(b"one")
        os.unlink(tmp_path / "blobs" / file.blob)
        with pytest.raises(NotFound):
            await bench.jobs.run(ANN, job("1", inputs={"f": file}))
        await wait_until(lambda: not bench.shop.transitions.live_sandboxes)

    tell(story)
