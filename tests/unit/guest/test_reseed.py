"""Two processes forked from one parent draw different values, and see their own surroundings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from unit.guest.forkserver_harness import ForkserverHarness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DRAWS = {
    "random": "random.random()",
    "uuid": "str(uuid.uuid4())",
    "uuid1": "uuid.uuid1().clock_seq, uuid.uuid1().time",
    "tempfile": "next(tempfile._get_candidate_names())",
    "ssl": "ssl.RAND_bytes(16).hex()",
    "secrets": "secrets.token_hex(8)",
    "multiprocessing": "bytes(multiprocessing.current_process().authkey).hex()",
    "semaphores": "multiprocessing.synchronize.SemLock._make_name()",
}
MODULES = ("random", "uuid", "tempfile", "ssl", "secrets", "multiprocessing", "multiprocessing.synchronize", "locale")


@pytest.fixture(scope="module")
def forkserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkserverHarness]:
    forkserver = ForkserverHarness(str(tmp_path_factory.mktemp("workspace")), without=("IPython",), preload=MODULES)
    yield forkserver
    forkserver.close()


@pytest.mark.parametrize("name", DRAWS)
def test_kernels_of_one_forkserver_draw_different_values(forkserver: ForkserverHarness, name: str) -> None:
    code = f"import {', '.join(MODULES)}\n{DRAWS[name]}"
    drawn = [forkserver.kernel().run(code).texts[0] for _ in range(2)]

    assert drawn[0] != drawn[1]


def test_kernels_draw_different_values_from_numpy(tmp_path: Path) -> None:
    pytest.importorskip("numpy", reason="numpy is not installed")
    forkserver = ForkserverHarness(str(tmp_path), without=("IPython",), preload=("numpy",))
    try:
        drawn = [forkserver.kernel().run("import numpy; float(numpy.random.rand())").texts[0] for _ in range(2)]
    finally:
        forkserver.close()

    assert drawn[0] != drawn[1]


def test_scripts_draw_different_values(forkserver: ForkserverHarness) -> None:
    drawn = [forkserver.script("import random; print(random.random())")[1] for _ in range(2)]

    assert drawn[0] != drawn[1]


def test_the_time_zone_is_that_of_the_environment(forkserver: ForkserverHarness) -> None:
    kernel = forkserver.kernel(env={**forkserver.env, "TZ": "XYZ-5"})

    assert kernel.run("import time; time.tzname[0], time.timezone").texts == ["('XYZ', -18000)"]


def test_temporary_files_go_where_the_environment_says(forkserver: ForkserverHarness, tmp_path: Path) -> None:
    kernel = forkserver.kernel(env={**forkserver.env, "TMPDIR": str(tmp_path)})

    assert kernel.run("import tempfile; tempfile.gettempdir()").texts == [repr(str(tmp_path))]


def test_modules_of_the_workspace_are_found_first(forkserver: ForkserverHarness, tmp_path: Path) -> None:
    (tmp_path / "gadget.py").write_text("where = 'packages'\n")
    kernel = forkserver.kernel(env={**forkserver.env, "WARREN_PACKAGES": str(tmp_path)})
    before = kernel.run("import gadget; gadget.where")
    with open(os.path.join(forkserver.workspace, "gadget.py"), "w", encoding="utf-8") as file:
        file.write("where = 'workspace'\n")
    after = forkserver.kernel(env={**forkserver.env, "WARREN_PACKAGES": str(tmp_path)}).run(
        "import gadget; gadget.where"
    )

    assert (before.texts, after.texts) == (["'packages'"], ["'workspace'"])
