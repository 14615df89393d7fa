"""What every suite shares: images, built once into a folder of the repository and kept between runs."""

from __future__ import annotations

import gc
import os
import signal
import time
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from suites import parts
from warren.core.images.catalog import Catalog
from warren.core.images.system import build_command, find_missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.domain.values import Image

# The same examples in every run, and no time limit for one: a failure comes from a change, not the machine's mood.
hypothesis.settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("same")
# WHY: else examples hold constants of the modules that are imported by then, which is another set in every worker.
providers._get_local_constants = Constants

_SETTLE_S = 60.0
_CACHE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ".cache", "tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=parts.PARTS, default="all", help="what `make test` runs, or the rest of it")


def pytest_configure() -> None:
    # A shell starts its background jobs with both ignored, and commands keep that, as they should.
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_collection() -> None:
    # Half a million objects are made here and none is dropped: looking for garbage is a third of the time.
    gc.disable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    parts.select(config, items)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def images_dir() -> str:
    """The data folder whose `images/` holds the built images; tests add nothing else to it."""
    return _CACHE


@pytest.fixture(scope="session")
def python_image(images_dir: str) -> Image:
    """The smallest image, built the first time it is asked for."""
    return Catalog(images_dir).build("python")


@pytest.fixture(scope="session")
def office_image(images_dir: str) -> Image:
    """The image with a browser and LaTeX, where this system has what it needs; the first who asks builds it."""
    catalog = Catalog(images_dir)
    missing = find_missing(catalog.spec("office").parts)
    if missing:
        pytest.skip(f"this system does not have {', '.join(missing)}: {build_command(missing)}")
    return catalog.build("office")


@pytest.fixture(scope="session", autouse=True)
def nothing_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail the run when a process or a mount of a test is still there at its end."""
    yield
    folder = f"{tmp_path_factory.getbasetemp()}/"
    deadline = time.monotonic() + _SETTLE_S
    while (left := _processes(folder) + _mounts(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def _processes(folder: str) -> list[str]:
    """Name the processes that were started with something under a folder."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if folder in command and int(name) != os.getpid():
            found.append(f"process {name}: {command}")
    return found


def _mounts(folder: str) -> list[str]:
    with open("/proc/self/mounts", encoding="utf-8") as file:
        return [f"mount {line.split()[1]}" for line in file if folder in line]
