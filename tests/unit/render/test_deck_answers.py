"""What a deck gets for the addresses that it asks for: its own files, installed packages, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from warren.render.browser.deck import URL, Answer, Deck
from warren.render.browser.mirror import Mirror

if TYPE_CHECKING:
    from pathlib import Path

DECK = Deck(b"<p class=slide>", {"a b.png": b"png", "x.svg": b"<svg/>", "font.woff2": b"font"})
PACKAGES = {
    "chart.js": ("dist/chart.umd.min.js", "dist/chart.js", "dist/chart.umd.js"),
    "d3": ("dist/d3.min.js", "dist/d3.js"),
    "katex": ("dist/katex.min.css", "dist/fonts/KaTeX_Main-Regular.woff2", "dist/contrib/auto-render.min.js"),
    "reveal.js": ("dist/reveal.js", "dist/reveal.css", "dist/theme/black.css", "dist/reveal.esm.js"),
    "@fortawesome/fontawesome-free": ("css/all.min.css", "css/all.css", "webfonts/fa-solid-900.woff2"),
    "@highlightjs/cdn-assets": ("highlight.min.js", "styles/github-dark.min.css"),
    "@tailwindcss/browser": ("dist/index.global.js",),
    "tailwindcss-cdn": ("tailwindcss.js", "tailwindcss-with-all-plugins.js"),
    "bootstrap": ("dist/css/bootstrap.min.css",),
    "jquery": ("dist/jquery.min.js",),
    "plotly.js-dist-min": ("plotly.min.js",),
    "material-icons": ("iconfont/material-icons.css", "iconfont/material-icons.woff2"),
}
MAINS = {"chart.js": "dist/chart.umd.min.js", "d3": "dist/d3.min.js", "@tailwindcss/browser": "dist/index.global.js"}


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    """Packages whose files hold their own names."""
    for package, files in PACKAGES.items():
        described = {"name": package, "jsdelivr": MAINS.get(package)}
        for name, content in (("package.json", json.dumps(described)), *((file, f"/* {file} */") for file in files)):
            path = tmp_path / "node_modules" / package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    (tmp_path / "secret").write_text("out of reach")
    (tmp_path / "node_modules" / "katex" / "dist" / "way-out.js").symlink_to(tmp_path / "secret")
    return Mirror(str(tmp_path / "node_modules"))


def ask(url: str, *, is_frame: bool = False, is_main: bool = False, mirror: Mirror | None = None) -> Answer | None:
    return DECK.answer(url, is_frame=is_frame, is_main=is_main, mirror=mirror)


@pytest.mark.parametrize(
    ("url", "content", "content_type"),
    [
        ("http://deck.invalid/assets/a%20b.png", b"png", "image/png"),
        ("http://deck.invalid/a%20b.png?v=2", b"png", "image/png"),
        ("http://deck.invalid/assets/x.svg", b"<svg/>", "image/svg+xml"),
        ("http://deck.invalid/assets/font.woff2", b"font", "font/woff2"),
    ],
)
def test_assets_are_found_with_and_without_their_folder(url: str, content: bytes, content_type: str) -> None:
    answer = ask(url)

    assert answer is not None
    assert (answer.body, answer.content_type) == (content, content_type)


@pytest.mark.parametrize(
    "url",
    [
        "http://deck.invalid/assets/other.png",
        "http://deck.invalid/assets/../../etc/passwd",
        "file:///etc/passwd",
        "http://127.0.0.1/assets/x.svg",
        "ws://deck.invalid/assets/x.svg",
        "https://example.com/",
        "chrome://version",
        "about:blank",
    ],
)
def test_what_is_not_the_decks_does_not_exist(url: str, mirror: Mirror) -> None:
    assert ask(url, mirror=mirror) is None
    assert ask(url, is_frame=True, mirror=mirror) is None
    assert ask(url, is_frame=True, is_main=True, mirror=mirror) is None


def test_the_page_is_there_once_and_not_in_a_frame_of_itself() -> None:
    page = ask(URL, is_frame=True, is_main=True)

    assert page is not None
    assert (page.body, page.is_page) == (DECK.html, True)
    assert ask(URL, is_frame=True) is None
    assert ask(URL + "?other", is_frame=True, is_main=True) is None


def test_checksums_of_scripts_and_styles_are_taken_out_and_those_in_the_text_stay() -> None:
    html = b"<script src=a integrity='sha512-x' defer></script><link INTEGRITY=\"y\" rel=x><p integrity='z'>"

    answer = Deck(html).answer(URL, is_frame=True, is_main=True)

    assert answer is not None
    assert answer.body == b"<script src=a defer></script><link rel=x><p integrity='z'>"


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("https://a.example/npm/chart.js", "dist/chart.umd.min.js"),
        ("https://a.example/npm/chart.js@4.4.0/dist/chart.umd.min.js", "dist/chart.umd.min.js"),
        ("https://a.example/npm/chart.js@3.9.1/dist/chart.min.js", "dist/chart.umd.min.js"),
        ("https://a.example/ajax/libs/Chart.js/2.9.4/Chart.bundle.min.js", "dist/chart.umd.min.js"),
        ("https://a.example/d3.v7.min.js", "dist/d3.min.js"),
        ("https://a.example/d3@7", "dist/d3.min.js"),
        ("https://a.example/d3/7.8.5/d3.min.js", "dist/d3.min.js"),
        ("https://a.example/npm/katex@0.16.9/dist/katex.min.css", "dist/katex.min.css"),
        ("https://a.example/ajax/libs/KaTeX/0.16.9/contrib/auto-render.min.js", "dist/contrib/auto-render.min.js"),
        ("https://a.example/npm/katex@0/dist/fonts/KaTeX_Main-Regular.woff2", "dist/fonts/KaTeX_Main-Regular.woff2"),
        ("https://a.example/npm/reveal.js@4/dist/theme/black.css", "dist/theme/black.css"),
        ("https://a.example/ajax/libs/reveal.js/4.5.0/theme/black.min.css", "dist/theme/black.css"),
        ("https://a.example/ajax/libs/reveal.js/4.5.0/reveal.min.css", "dist/reveal.css"),
        ("https://a.example/ajax/libs/font-awesome/6.4.0/css/all.min.css", "css/all.min.css"),
        ("https://a.example/releases/v5.15.4/css/all.css", "css/all.css"),
        (
            "https://a.example/gh/highlightjs/cdn-release@11/build/styles/github-dark.min.css",
            "styles/github-dark.min.css",
        ),
        ("https://a.example/ajax/libs/highlight.js/11.9.0/highlight.min.js", "highlight.min.js"),
        ("https://cdn.tailwindcss.com", "tailwindcss.js"),
        ("https://cdn.tailwindcss.com/3.4.1?plugins=forms", "tailwindcss-with-all-plugins.js"),
        ("https://a.example/npm/@tailwindcss/browser@4", "dist/index.global.js"),
        ("https://a.example/bootstrap/4.5.2/css/bootstrap.min.css", "dist/css/bootstrap.min.css"),
        ("https://a.example/jquery-3.7.1.min.js", "dist/jquery.min.js"),
        ("https://a.example/plotly-2.27.0.min.js", "plotly.min.js"),
        ("https://a.example/plotly-latest.min.js", "plotly.min.js"),
    ],
)
def test_what_the_web_serves_is_found_in_packages_by_the_shape_of_its_address(
    url: str, file: str, mirror: Mirror
) -> None:
    answer = ask(url, mirror=mirror)

    assert answer is not None
    assert answer.body.startswith(f"/* {file} */".encode())


def test_a_script_becomes_a_module_where_a_module_is_asked_for(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "node_modules/d3/dist/d3.js").write_text("exports.sum = sum; exports.window = window;")

    answer = ask("https://a.example/npm/d3@7/+esm", mirror=mirror)

    assert answer is not None
    assert b"export {$own0 as sum, $own1 as window};" in answer.body
    assert b"export default" in answer.body


def test_fonts_of_the_web_are_the_installed_ones_and_icons_have_their_own(mirror: Mirror) -> None:
    text = ask("https://a.example/css2?family=Inter:wght@400;700&family=Lora&display=swap", mirror=mirror)
    icons = ask("https://a.example/icon?family=Material+Icons", mirror=mirror)

    assert text == Answer(b"", "text/css; charset=utf-8")
    assert icons is not None
    assert icons.body == b"/* iconfont/material-icons.css */"


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/npm/../secret",
        "https://a.example/npm/katex@1/../../secret",
        "https://a.example/npm/katex@1/..%2f..%2f..%2fsecret",
        "https://a.example/npm/katex@1/dist/way-out.js",
        "https://a.example/npm/" + "a" * 5000,
        "https://a.example/npm/%00",
        "https://a.example/" + "/a.b" * 400 + ".js",
    ],
)
def test_nothing_outside_the_packages_is_found(url: str, mirror: Mirror) -> None:
    assert ask(url, mirror=mirror) is None
