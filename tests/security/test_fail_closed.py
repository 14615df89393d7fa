"""On a host that cannot hold a layer of isolation there is no sandbox, unless the operator gave that layer up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from security.arena import ROOTLESS
from warren.engines.local.linux.host import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.domain.values import Image

    Use = Callable[..., dict[str, Any]]

_SCRIPT = os.path.join(os.path.dirname(__file__), "poor_host.py")


@pytest.fixture
def use(images_dir: str, python_image: Image) -> Iterator[Use]:
    """Use an engine where something is missing, in a process of its own."""
    del python_image  # Built, for users who cannot build it.
    folder = tempfile.mkdtemp(prefix="warren-poor-")

    def use(lack: str, *optional: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, _SCRIPT, lack, folder, images_dir, *optional],
            capture_output=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    yield use
    shutil.rmtree(folder)


def _assert_works(answer: dict[str, Any]) -> None:
    assert "refused" not in answer, answer
    assert answer["stdout"].startswith("2\n")
    status = dict(line.split(":\t", 1) for line in answer["stdout"].splitlines() if ":\t" in line)
    assert (status["Seccomp"], status["NoNewPrivs"], status["CapEff"], status["CapBnd"]) == (
        "2",
        "1",
        "0" * 16,
        "0" * 16,
    )


without_groups = pytest.mark.skipif(
    ROOTLESS and describe().user_manager, reason="systemd gives this user control groups, so that nothing is missing"
)
needs_root = pytest.mark.skipif(ROOTLESS, reason="only root can take it away from itself")


@pytest.mark.parametrize(
    ("lack", "layers"),
    [
        pytest.param("control groups", ("memory", "cpu", "pids"), marks=needs_root),
        ("user namespaces", ("user", "nesting")),
        ("seccomp", ("seccomp",)),
        ("no_new_privs", ("no_new_privs", "seccomp")),
        ("capset", ("capabilities",)),
        ("open_tree", ("mount", "user", "disk", "proc")),
    ],
)
def test_a_missing_layer_refuses_every_sandbox_by_name_and_with_a_fix(
    use: Use, lack: str, layers: tuple[str, ...]
) -> None:
    given_up = ("memory", "cpu") if ROOTLESS else ()
    answer = use(lack, *given_up)

    assert answer.get("code") in ("engine_unavailable", "start_failed"), answer
    message = answer["refused"]
    assert any(layer in message for layer in layers), message
    assert "\n" not in message
    assert ";" in message, f"no fix: {message}"


@without_groups
def test_an_ordinary_user_is_refused_without_memory_and_cpu_limits(use: Use) -> None:
    answer = use("root")

    assert answer.get("code") == "engine_unavailable", answer
    assert "memory" in answer["refused"] or "cpu" in answer["refused"]
    assert "WARREN_OPTIONAL_LAYERS" in answer["refused"]


@without_groups
def test_an_ordinary_user_who_gives_them_up_has_every_other_layer(use: Use) -> None:
    answer = use("root", "memory", "cpu")

    _assert_works(answer)
    layers = set(answer["layers"])
    assert {"user", "mount", "pid", "net", "ipc", "uts", "cgroup", "seccomp", "capabilities", "pids"} <= layers
    assert not {"memory", "cpu", "uid"} & layers


@without_groups
def test_what_an_ordinary_user_is_refused_is_known_before_anybody_asks_for_it(use: Use) -> None:
    without, with_it = use("root", "memory", "cpu"), use("root", "memory", "cpu", "disk")

    assert without["persistent"]
    assert [without["persistent"] in each for each in without["caveats"]].count(True) == 1
    assert with_it["persistent"] == ""
    # Where no control group is to be had, it is said what bounds the number of tasks in its place.
    told = [each.partition(":")[0] for each in with_it["caveats"]]
    given_up = [f"layer {name} is given up (optional_layers), and does not hold" for name in ("memory", "cpu")]
    assert told == ["layer pids", *given_up]
    assert "RLIMIT_NPROC" in with_it["caveats"][0]


@needs_root
def test_layers_that_were_given_up_are_missing_from_the_record(use: Use) -> None:
    answer = use("control groups", "memory", "cpu", "pids")

    _assert_works(answer)
    assert not {"memory", "cpu", "pids"} & set(answer["layers"])


def test_landlock_is_extra_and_its_absence_is_recorded(use: Use) -> None:
    given_up = ("memory", "cpu") if ROOTLESS else ()
    answer = use("landlock", *given_up)

    _assert_works(answer)
    assert "landlock" not in answer["layers"]


def test_giving_up_a_layer_that_does_not_exist_is_a_mistake(use: Use) -> None:
    answer = use("nothing", "memroy")

    assert "memroy" in answer.get("refused", ""), answer
