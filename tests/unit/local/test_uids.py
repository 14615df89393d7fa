"""Blocks of user ids, claimed by folders."""

from __future__ import annotations

import itertools
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from warren.engines.local.linux import uids

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def registry(tmp_path: Path) -> str:
    return str(tmp_path / "registry")


def _folder(tmp_path: Path, name: str) -> str:
    folder = tmp_path / name
    folder.mkdir()
    return str(folder)


def test_a_folder_keeps_its_block(tmp_path: Path, registry: str) -> None:
    folder = _folder(tmp_path, "one")

    assert len({uids.claim(folder, registry) for _ in range(3)}) == 1


def test_a_folder_keeps_its_block_when_a_reboot_emptied_the_registry(tmp_path: Path, registry: str) -> None:
    folder = _folder(tmp_path, "one")
    first = uids.claim(folder, registry)
    shutil.rmtree(registry)

    assert uids.claim(folder, registry) == first


def test_no_two_folders_share_an_id_and_all_are_in_range(tmp_path: Path, registry: str) -> None:
    bases = sorted(uids.claim(_folder(tmp_path, f"f{number}"), registry) for number in range(50))

    assert all(above - below >= uids.BLOCK for below, above in itertools.pairwise(bases))
    assert bases[0] >= 1_879_048_192
    assert bases[-1] + uids.BLOCK <= 2_147_352_576


def test_the_block_of_a_folder_that_is_gone_is_given_out_again(tmp_path: Path, registry: str) -> None:
    os.makedirs(registry)
    for block in range(8):
        with open(os.path.join(registry, str(block)), "w", encoding="utf-8") as file:
            file.write(str(tmp_path / "gone"))
    folder = _folder(tmp_path, "one")
    base = uids.claim(folder, registry, blocks=8)

    assert uids.claim(folder, registry, blocks=8) == base
    assert base in range(uids.FIRST, uids.FIRST + 8 * uids.BLOCK)


def test_a_copied_folder_gets_a_block_of_its_own(tmp_path: Path, registry: str) -> None:
    folder = _folder(tmp_path, "one")
    first = uids.claim(folder, registry)
    copy = str(tmp_path / "copy")
    shutil.copytree(folder, copy)

    assert uids.claim(copy, registry) != first
    assert uids.claim(folder, registry) == first


def test_when_every_block_is_taken_it_says_so(tmp_path: Path, registry: str) -> None:
    os.makedirs(registry)
    holder = _folder(tmp_path, "holder")
    for block in range(8):
        folder = tmp_path / f"h{block}"
        folder.mkdir()
        (folder / "uid_block").write_text(str(block))
        with open(os.path.join(registry, str(block)), "w", encoding="utf-8") as file:
            file.write(str(folder))

    with pytest.raises(RuntimeError, match="all 8 blocks of user ids are taken"):
        uids.claim(holder, registry, blocks=8)


@pytest.mark.parametrize("text", ["", "x", "-1", "999999"])
def test_a_damaged_note_is_replaced(tmp_path: Path, registry: str, text: str) -> None:
    folder = _folder(tmp_path, "one")
    (tmp_path / "one" / "uid_block").write_text(text)

    assert uids.claim(folder, registry) == uids.claim(folder, registry)
