"""Wheel filter: wheels that may fit stay, others are left out, and no version disappears."""

from __future__ import annotations

import json
import platform
import sys
from typing import TYPE_CHECKING

import anyio
import pytest
from packaging import tags

from api.package_server import shelving
from unit.core.mirrored import JSON, mirroring
from warren.core.packages.python import Target
from warren.core.sandboxes.environment import build_package_env
from warren.guest.packages import install

if TYPE_CHECKING:
    from pathlib import Path

TARGET = Target(11, "x86_64")


def test_whatever_this_python_takes_is_never_left_out() -> None:
    here = Target(sys.version_info.minor, platform.machine())
    taken = [f"thing-1.0-{tag}.whl" for tag in tags.sys_tags()]
    assert len(taken) > 100
    assert [wheel for wheel in taken if not here.fits(wheel)] == []


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("thing-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("thing-1.0-1build-cp311-cp311-linux_x86_64.whl", True),
        ("thing-1.0-cp38-abi3-manylinux_2_28_x86_64.whl", True),
        ("thing-1.0-cp312-abi3-manylinux_2_28_x86_64.whl", False),
        ("thing-1.0-py2.py3-none-any.whl", True),
        ("thing-1.0-cp310-cp310-manylinux_2_17_x86_64.whl", False),
        ("thing-1.0-cp311-cp311-manylinux_2_17_aarch64.whl", False),
        ("thing-1.0-cp311-cp311-win_amd64.whl", False),
        ("thing-1.0-cp311-cp311-macosx_11_0_x86_64.whl", False),
        ("thing-1.0-pp310-pypy310_pp73-manylinux_2_17_x86_64.whl", False),
        ("thing-1.0.tar.gz", True),
        ("thing-1.0.zip", True),
        ("of-no-known-form.whl", True),
    ],
)
def test_the_name_of_a_wheel_says_what_it_is_for(name: str, fits: bool) -> None:
    assert TARGET.fits(name) is fits


@pytest.mark.parametrize("name", ["", "cp311", "cp311-", "cp311-vax", "cp27-x86_64", "cp3111-x86_64", "pp311-x86_64"])
def test_of_a_python_that_is_not_known_everything_is_shown(tmp_path: Path, name: str) -> None:
    assert Target.parse(name) is None
    if name:
        assert len(show(tmp_path, name)) == 5


def test_a_page_for_one_python_has_what_fits_and_all_of_a_version_of_which_nothing_does(tmp_path: Path) -> None:
    assert show(tmp_path, "cp311-x86_64") == [
        "thing-1.0-cp310-cp310-win_amd64.whl",
        "thing-2.0-cp311-cp311-manylinux_2_17_x86_64.whl",
        "thing-2.0.tar.gz",
    ]


def test_the_installer_asks_for_such_pages_and_only_of_the_services_own_index() -> None:
    [option, url] = install.narrow_index(build_package_env()["UV_DEFAULT_INDEX"])
    assert option == "--default-index"
    assert Target.parse(url.split("/")[-3]) == Target(sys.version_info.minor, platform.machine())
    assert install.narrow_index("https://packages.example.com/pypi/simple/") == []


def show(folder: Path, python: str) -> list[str]:
    found: list[str] = []

    async def body() -> None:
        with shelving() as shelf:
            for name in [
                "thing-1.0-cp310-cp310-win_amd64.whl",
                "thing-2.0-cp310-cp310-win_amd64.whl",
                "thing-2.0-cp311-cp311-manylinux_2_17_x86_64.whl",
                "thing-2.0-cp312-cp312-manylinux_2_17_x86_64.whl",
                "thing-2.0.tar.gz",
            ]:
                shelf.pages.setdefault("thing", []).append(
                    {"filename": name, "url": f"../../files/{name}", "hashes": {}}
                )
            async with mirroring(folder, shelf) as mirror:
                reply = await mirror.ask(f"/pypi/for/{python}/simple/thing/", **JSON)
                found.extend(file["filename"] for file in json.loads(reply.body)["files"])

    anyio.run(body)
    return sorted(found)
