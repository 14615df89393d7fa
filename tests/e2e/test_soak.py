"""The soak, shortened: half an hour of it is `make soak`."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from warren.domain.values import Image

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.mark.root
@pytest.mark.rest("half a minute of mixed load, on all cores")
@pytest.mark.timeout(300)
@pytest.mark.skipif(os.geteuid() != 0, reason="the soak stops and resumes sandboxes, which needs root for its disks")
def test_mixed_load_leaves_no_answer_unexplained_and_nothing_grows(images_dir: str, python_image: Image) -> None:
    argv = [sys.executable, "-m", "benchmarks.soak", "--minutes", "0.5", "--image", python_image.name]

    done = subprocess.run(
        [*argv, "--data", images_dir], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
