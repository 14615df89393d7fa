"""A sandbox's process is found again by the keeper that follows, whatever became of it meanwhile."""

from __future__ import annotations

import json
import os
import select
import subprocess
from typing import TYPE_CHECKING

from warren.engines import procfs
from warren.engines.local.keeper.records import STOPPED, Record, load_records

if TYPE_CHECKING:
    from pathlib import Path


def test_a_process_is_opened_only_while_it_is_the_one_that_was_noted(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        record = Record(id="sbx_00000000", folder=str(tmp_path), pid=process.pid)
        record.start_time = procfs.start_time(process.pid)
        pidfd = record.open_process()
        other = Record(id="sbx_00000001", folder=str(tmp_path), pid=process.pid, start_time=record.start_time - 1)
        others = other.open_process()
        process.kill()
        select.select([pidfd], [], [])
        unreaped = record.open_process()
        process.wait()
        gone = record.open_process()
    is_it = procfs.pid_of(pidfd)
    os.close(pidfd)

    assert pidfd >= 0
    assert is_it == -1
    assert (others, unreaped, gone) == (-1, -1, -1)
    assert Record(id="sbx_00000002", folder=str(tmp_path)).open_process() == -1


_BEFORE_GPUS = {"id", "state", "storage", "image", "uid_index", "group", "pid", "start_time", "limits", "layers"}


def test_a_record_without_gpus_is_one_that_versions_before_them_understand(tmp_path: Path) -> None:
    (tmp_path / "sbx_00000000").mkdir()
    Record(id="sbx_00000000", folder=str(tmp_path / "sbx_00000000"), storage="persistent").save()

    assert set(json.loads((tmp_path / "sbx_00000000" / "record.json").read_text())) == _BEFORE_GPUS


def test_a_record_of_a_later_version_is_not_taken_for_a_broken_one(tmp_path: Path) -> None:
    folder = tmp_path / "sbx_00000000"
    folder.mkdir()
    Record(id="sbx_00000000", folder=str(folder), storage="persistent", state=STOPPED, gpus=["a/gpu=0"]).save()
    noted = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps({**noted, "of_tomorrow": 1}))
    (found,) = load_records(str(tmp_path))

    assert (found.state, found.storage, found.gpus) == (STOPPED, "persistent", ["a/gpu=0"])
