"""The locks: hashed, without addresses, and in step with what they lock."""

from __future__ import annotations

import re
import tomllib

import pytest

from house.repository import files, read
from warren.core.images.spec import locked_versions

LOCKS = [*files(under="requirements/", suffix=".lock"), *files(under="images/", suffix=".lock")]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_index_and_no_folder(lock: str) -> None:
    assert not re.search(r"://|--index-url|--find-links|--extra-index-url|file:", read(lock))


@pytest.mark.parametrize("lock", LOCKS)
def test_everything_locked_has_a_hash(lock: str) -> None:
    requirements = re.findall(r"^\S+==.*(?:\n +--hash=\S+.*)*", read(lock), re.MULTILINE)

    assert requirements
    assert [each for each in requirements if "--hash=sha256:" not in each] == []


def wanted(*extras: str) -> set[str]:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    listed = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    return {re.split(r"[<>=!~\[ ;]", each)[0].lower().replace("_", "-") for each in listed}


def test_the_locks_hold_everything_that_the_project_asks_for() -> None:
    assert wanted("server") - set(locked_versions(read("requirements/base.lock"))) == set()
    assert wanted("server", "dev", "bench") - set(locked_versions(read("requirements/dev.lock"))) == set()


def test_the_locks_agree_with_each_other() -> None:
    base, dev = (locked_versions(read(f"requirements/{name}.lock")) for name in ("base", "dev"))
    setup = locked_versions(read("requirements/setup.lock"))

    assert {name: (pins, dev.get(name)) for name, pins in {**base, **setup}.items() if dev.get(name) != pins} == {}


def test_nothing_direct_in_a_lock_is_left_over_from_an_earlier_project_file() -> None:
    direct = re.findall(
        r"^([\w.-]+)==[^\n]*(?:\n    --hash[^\n]*)*\n(?:    #[^\n]*\n)*?    #.*\bwarren-sandbox \(pyproject",
        read("requirements/base.lock"),
        re.MULTILINE,
    )

    assert {name.lower() for name in direct} - wanted("server") == set()
