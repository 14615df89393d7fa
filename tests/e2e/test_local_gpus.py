"""Sandboxes with GPUs outlive their keeper, and leave nothing when they go."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from e2e.story import Story, run
from unit.local.fake_gpus import write_spec
from unit.local.forked import needs_root
from warren.domain.gpus import GpuRequest
from warren.engines.local.engine import LocalEngine

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.root, needs_root]

OPEN = "import os; os.close(os.open('/dev/gpu1', os.O_RDWR)); print(os.path.exists('/dev/gpu0'))"


def test_a_sandbox_with_a_gpu_outlives_its_keeper_and_its_group_goes_with_it(tell: Any, tmp_path: Path) -> None:
    specs = tmp_path / "cdi"
    specs.mkdir()
    tmp_path.chmod(0o755)
    write_spec(specs)

    async def story(s: Story) -> None:
        await s.engine.close()
        s.engine = LocalEngine(str(s.folder), cdi_dirs=[str(specs)])
        await s.engine.open()
        handle = await s.engine.create(s.spec(gpus=GpuRequest(("1",))))
        record = json.loads((s.folder / "local" / "sandboxes" / handle.sandbox_id / "record.json").read_text())
        os.kill(s.keeper_pid, signal.SIGKILL)
        found = await run(s.engine, handle, OPEN)
        # The host may have some of its own.
        held = {gpu.id: gpu.sandboxes for gpu in await s.engine.gpus() if gpu.id.startswith("example.com/")}
        await s.engine.destroy(handle)

        assert found.stdout == b"False\n"
        assert held == {"example.com/gpu=0": 0, "example.com/gpu=1": 1}
        assert record["gpus"] == ["example.com/gpu=1"]
        groups.append(record["device_group"])

    groups: list[str] = []
    tell(story)

    # Empty where its own group has the filter, as on cgroup v2.
    assert not any(map(os.path.exists, groups))
