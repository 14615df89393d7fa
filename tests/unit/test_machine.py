"""Maxima of a sandbox, from this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from warren.bootstrap.app import build_policy
from warren.bootstrap.guardrails import Facts, check
from warren.bootstrap.machine import build_maxima, read_cpus, read_memory
from warren.domain.errors import ConfigError, InvalidRequest
from warren.domain.values import GIB, MIB, Limits
from warren.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


def test_maxima_are_those_of_this_machine(tmp_path: Path) -> None:
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    maxima = build_maxima(Settings(data_dir=str(tmp_path / "not" / "made")))
    at = os.statvfs(tmp_path)

    assert 64 * MIB <= maxima["memory_bytes"] == read_memory() <= whole
    assert 0 < maxima["cpus"] == read_cpus() <= (os.cpu_count() or 1)
    assert 16 <= maxima["pids"] <= 32_768
    assert maxima["disk_bytes"] == at.f_blocks * at.f_frsize // 2


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"memory_bytes": 1000 * GIB}, "memory_bytes may be at most .*G in one sandbox here, and 1000G was asked for"),
        ({"cpus": 1024}, "cpus may be at most "),
        ({"disk_bytes": 4096 * GIB}, "disk_bytes may be at most "),
    ],
)
def test_no_tenant_gets_more_than_the_machine_has(tmp_path: Path, asked: dict[str, float], words: str) -> None:
    policy = build_policy(Settings(data_dir=str(tmp_path)))

    policy.check_limits("acme", policy.limits_of("acme"))
    with pytest.raises(InvalidRequest, match=words):
        policy.check_limits("acme", Limits(**asked))  # type: ignore[arg-type]


def test_a_set_maximum_lowers_the_defaults_and_0_is_no_limit(tmp_path: Path) -> None:
    data = str(tmp_path)
    low = build_policy(Settings.load({}, data, {"data_dir": data, "maximum.disk_bytes": "100M", "maximum.cpus": "0.5"}))
    none = build_policy(Settings.load({}, data, {"data_dir": data, "maximum.memory_bytes": "0"}))

    assert (low.limits.disk_bytes, low.limits.cpus) == (100 * MIB, 0.5)
    none.check_limits("acme", Limits(memory_bytes=1000 * GIB))


@pytest.mark.parametrize("value", ["much", "-1", "true", "inf"])
def test_a_maximum_that_is_no_number_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"maximum\.cpus cannot be .*: write auto, or a number of 0 or more"):
        Settings.load({}, str(tmp_path), {"maximum.cpus": value})


def test_a_service_that_others_reach_has_maxima_of_every_kind() -> None:
    settings = Settings.model_validate(
        {
            "env": "production",
            "maximum": {"memory_bytes": 0, "cpus": 0, "pids": 0, "disk_bytes": 0},
            "disk": {"free_bytes": 0},
        }
    )
    found = [sentence for sentence in check(settings, Facts()) if sentence.startswith("no_quota")]

    assert [sentence.split()[1] for sentence in found] == [
        *("maximum.memory_bytes", "maximum.cpus", "maximum.pids", "maximum.disk_bytes", "disk.free_bytes")
    ]
