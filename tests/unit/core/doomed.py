"""A workshop that starts executions, says which, and waits to be killed."""

from __future__ import annotations

import json
import sys

import anyio

from unit.core.estate import ANN
from unit.core.workshop import SHELL, Workshop
from warren.core.executions.executions import NewExecution
from warren.core.policy.policy import Policy


async def main(data_dir: str, images_dir: str, stories: list[dict[str, str]]) -> None:
    """Run each command in a sandbox of its own, in the foreground, the background, or to its end."""
    shop = Workshop(data_dir, images_dir, Policy(image="python"))
    async with shop.working(), anyio.create_task_group() as tasks:
        told = []
        for story in stories:
            sandbox = await shop.create(storage=story.get("storage", "persistent"))
            assert (await shop.run(sandbox.id, "mkfifo gate", kind=SHELL)).ok
            new = NewExecution(
                kind=SHELL,
                code=story["code"],
                background=story["how"] == "background",
                idempotency_key=story.get("key"),
            )
            if story["how"] == "finished":
                await shop.executions.run(ANN, sandbox.id, new)
                await shop.executions.flush()
            elif story["how"] == "background":
                await shop.executions.start(ANN, sandbox.id, new)
            else:
                tasks.start_soon(shop.executions.run, ANN, sandbox.id, new)
            told.append({"sandbox": sandbox.id, "execution": await newest(shop, sandbox.id)})
        print(json.dumps(told), flush=True)
        await anyio.sleep_forever()


async def newest(shop: Workshop, sandbox_id: str) -> str:
    """Wait for the second execution of a sandbox, and return its id."""
    while True:
        page = await shop.executions.list(ANN, sandbox_id)
        if page.total == 2:
            return page.items[0].id
        await anyio.sleep(0.001)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
