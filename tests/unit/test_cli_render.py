"""`warren render` before anybody waits: what cannot be rendered or written is said at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer

from warren.cli.commands.render import _read_assets, render
from warren.cli.options import Target

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("page", "options", "words"),
    [
        ("missing.html", {}, "missing.html cannot be read"),
        ("empty.html", {}, "is empty"),
        ("latin.html", {}, "save it as one"),
        ("deck.html", {"output": "deck.key"}, "neither in .pptx nor in .zip"),
        ("deck.html", {"output": "nowhere/deck.pptx"}, "there is no folder"),
        ("deck.html", {"output": "folder.pptx"}, "it is a folder"),
        ("deck.html", {"previews": "deck.html"}, "is not a folder"),
        ("deck.html", {"assets": "nowhere"}, "nowhere cannot be read"),
    ],
)
def test_a_mistake_is_said_before_anything_is_rendered(
    tmp_path: Path, page: str, options: dict[str, str], words: str
) -> None:
    (tmp_path / "deck.html").write_text("<section class=slide>x</section>")
    (tmp_path / "empty.html").write_text(" \n")
    (tmp_path / "latin.html").write_bytes("<section class=slide>é</section>".encode("latin-1"))
    (tmp_path / "folder.pptx").mkdir()
    chosen = {name: str(tmp_path / value) for name, value in options.items()}

    with pytest.raises(typer.BadParameter, match=words):
        # At a service that does not exist: it is not even asked.
        render(str(tmp_path / page), target=Target("http://127.0.0.1:1"), **chosen)  # type: ignore[arg-type]  # all are strings


def test_files_that_cannot_be_assets_are_left_out_and_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a-1.png", "my pic.png", ".hidden"):
        (tmp_path / name).write_bytes(b"x")
    for folder in ("more", ".git"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.png").write_bytes(b"y")

    assert _read_assets("deck.html", str(tmp_path)) == {"a-1.png": b"x", "more/b.png": b"y"}
    said = capsys.readouterr().err
    assert said.startswith("warning: ")
    assert "my pic.png is left out" in said
    assert ".hidden" not in said
