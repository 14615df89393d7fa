"""Scores of decks: `slides_score.py reference OUT DECK…`, then `slides_score.py score OUT NAME…`.

Reference by Chromium; PPTX to PDF by LibreOffice, to PNG by poppler. Of each slide, 1920 x 1080:
  ssim_ink   SSIM at half size, only where either picture has edges: white space does not count
  txt_rec    words of the page (single East Asian characters) that are real, visible text on the slide
  place8     words whose twin in the PDF is within 8 px (middle, baseline); med_px the median distance
  shp_rec    painted boxes of the page that are native shapes or cells (at least 80 % in common)
  frag       shapes with text / blocks of text of the page; tables, links: native / on the page
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

from slides_native import native

WIDTH, HEIGHT = 1920, 1080
NEAR = 8
_HEAD = ("converter", "ssim_ink", "txt_rec %", "place8 %", "med px", "shp_rec %", "frag", "tables", "links")
_COST = ("s/slide", "peak MB", "KB/slide")
LOST = 1e9
_CJK = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\u3040-\u30ff"
_YES, _NO = ({"type": "boolean", "value": value} for value in ("true", "false"))
_LOSSLESS = json.dumps({"UseLosslessCompression": _YES, "ReduceImageResolution": _NO}, separators=(",", ":"))


def reference(out: Path, decks: list[Path]) -> None:
    """Take pictures of all slides, and write down what they show."""
    from playwright.sync_api import sync_playwright
    from slides_peers import CHROMIUM

    script = Path(__file__).with_name("slides_truth.js").read_text(encoding="utf-8")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(**CHROMIUM)
        for deck in decks:
            folder = out / "reference" / deck.name
            folder.mkdir(parents=True, exist_ok=True)
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto((deck / "index.html").as_uri())
            page.evaluate("document.fonts.ready")
            (folder / "truth.json").write_text(json.dumps(page.evaluate(script[script.index("() =>") :])))
            for number, slide in enumerate(page.query_selector_all(".slide")):
                slide.screenshot(path=str(folder / f"{number:03d}.png"))
            page.close()


def rendered(deck: Path) -> tuple[Path, list[Path]]:
    """Return the deck as LibreOffice paints it: a PDF, and a picture of each page."""
    folder = deck.parent / "rendered"
    folder.mkdir(exist_ok=True)
    for old in folder.glob(f"{deck.stem}-*.png"):
        old.unlink()
    with tempfile.TemporaryDirectory() as profile:
        office = ["soffice", f"-env:UserInstallation=file://{profile}", "--headless"]
        wanted = ["--convert-to", f"pdf:impress_pdf_Export:{_LOSSLESS}", "--outdir", str(folder), str(deck)]
        subprocess.run([*office, *wanted], check=True, capture_output=True, timeout=300)
    pdf = folder / f"{deck.stem}.pdf"
    size = ["-scale-to-x", str(WIDTH), "-scale-to-y", str(HEIGHT)]
    subprocess.run(["pdftoppm", "-png", *size, str(pdf), str(folder / deck.stem)], check=True)
    return pdf, sorted(folder.glob(f"{deck.stem}-*.png"))


def tokens(text: str) -> list[str]:
    """Words, and single East Asian characters."""
    return re.findall(rf"[{_CJK}]|[^\W_]+", unicodedata.normalize("NFKC", text).lower())


def likeness(wanted: Path, found: Path) -> float:
    """SSIM where there is ink."""
    import numpy as np
    from PIL import Image
    from scipy.ndimage import binary_dilation, sobel
    from skimage.metrics import structural_similarity

    pictures = []
    for path in (wanted, found):
        with Image.open(path) as image:
            small = image.convert("RGB").resize((WIDTH // 2, HEIGHT // 2), Image.Resampling.BOX)
            pictures.append(np.asarray(small.convert("L"), np.float32))
    _, alike = structural_similarity(*pictures, data_range=255, full=True)
    edges = [np.hypot(sobel(each, 0), sobel(each, 1)) > 24 for each in pictures]
    ink = binary_dilation(edges[0] | edges[1], iterations=3)
    return float(alike[ink].mean()) if ink.any() else 1.0


def places(page: Any) -> dict[str, list[tuple[float, float]]]:
    """Where a PDF page has each word: its middle and its baseline, in pixels."""
    factor, found = WIDTH / page.rect.width, {}  # type: tuple[float, dict[str, list[tuple[float, float]]]]
    word: list[Any] = []

    def close() -> None:
        key = "".join(tokens("".join(each["c"] for each in word)))
        if key:
            left, right = min(each["bbox"][0] for each in word), max(each["bbox"][2] for each in word)
            found.setdefault(key, []).append(((left + right) / 2 * factor, word[-1]["origin"][1] * factor))
        word.clear()

    lines = [line for block in page.get_text("rawdict")["blocks"] for line in block.get("lines", [])]
    for line in lines:
        for letter in (letter for span in line["spans"] for letter in span["chars"]):
            character, box = letter["c"], letter["bbox"]
            if not (character.isalnum() or unicodedata.category(character)[0] == "M"):
                close()
                continue
            is_alone = bool(re.match(f"[{_CJK}]", character))
            if is_alone or (word and box[0] - word[-1]["bbox"][2] > 0.9 * (box[3] - box[1])):
                close()
            word.append(letter)
            if is_alone:
                close()
        close()
    return found


def distances(words: list[Any], page: Any) -> list[float]:
    """How far each word of the page is from the nearest of its kind that is left."""
    found, result = places(page), []
    for text, x, _, width, _, base in words:
        key = "".join(tokens(text))
        if not key:
            continue
        spots = found.get(key)
        if not spots:
            result.append(LOST)
            continue
        away = [((x + width / 2 - a) ** 2 + (base - b) ** 2) ** 0.5 for a, b in spots]
        nearest = away.index(min(away))
        result.append(away[nearest])
        spots.pop(nearest)
    return result


def covered(boxes: list[Any], shapes: list[Any]) -> int:
    """How many painted boxes have a native shape that shares 80 % of their common area."""
    return sum(any(_common(box, shape) >= 0.8 for shape in shapes) for box in boxes)


def _common(one: Any, other: Any) -> float:
    across = max(0.0, min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0]))
    down = max(0.0, min(one[1] + one[3], other[1] + other[3]) - max(one[1], other[1]))
    shared = across * down
    return shared / (one[2] * one[3] + other[2] * other[3] - shared) if shared else 0.0


def slides_of(deck: Path, folder: Path) -> list[dict[str, Any]]:
    """Scores of each slide of a deck; one that is not there scores nothing."""
    import pymupdf

    truth = json.loads((folder / "truth.json").read_text())
    written, pictures, pdf = [], [], None  # type: tuple[list[dict[str, Any]], list[Path], Any]
    if deck.exists():
        written = native(deck)
        path, pictures = rendered(deck)
        pdf = pymupdf.open(path)
    rows = []
    for number, page in enumerate(truth):
        want = Counter(token for word in page["words"] for token in tokens(word[0]))
        row = {"words": sum(want.values()), "blocks": page["blocks"], "boxes": len(page["boxes"]), "ink": 0.0}
        row |= {"hits": 0, "away": [LOST] * len(page["words"]), "texts": 0, "covered": 0, "seconds": 0.0}
        row |= {"tables": (0, page["tables"]), "links": (0, page["links"])}
        if number < min(len(written), len(pictures)) and pdf is not None:
            made = written[number]
            row["ink"] = likeness(folder / f"{number:03d}.png", pictures[number])
            row["hits"] = sum((want & Counter(tokens(made["text"]))).values())
            row["away"], row["texts"] = distances(page["words"], pdf[number]), made["texts"]
            row["covered"] = covered(page["boxes"], made["shapes"])
            row["tables"], row["links"] = (made["tables"], page["tables"]), (made["links"], page["links"])
        rows.append(row)
    return rows


def line_of(name: str, rows: list[dict[str, Any]], runs: dict[str, Any]) -> str:
    """One line of the table."""
    away = [each for row in rows for each in row["away"]]
    near = [each for each in away if each < LOST]
    total = {key: sum(row[key] for row in rows) for key in ("words", "hits", "texts", "blocks", "covered", "boxes")}
    pairs = {key: "/".join(str(sum(row[key][side] for row in rows)) for side in (0, 1)) for key in ("tables", "links")}
    cells = [
        name,
        f"{statistics.mean(row['ink'] for row in rows):.3f}",
        f"{100 * total['hits'] / max(1, total['words']):.1f}",
        f"{100 * sum(each <= NEAR for each in away) / max(1, len(away)):.1f}",
        f"{statistics.median(near):.1f}" if near else "-",
        f"{100 * total['covered'] / max(1, total['boxes']):.1f}",
        f"{total['texts'] / max(1, total['blocks']):.2f}",
        pairs["tables"],
        pairs["links"],
        f"{sum(run['s'] for run in runs.values()) / len(rows):.2f}",
        f"{max(run['mb'] for run in runs.values()):.0f}",
        f"{sum(run['kb'] for run in runs.values()) / len(rows):.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def score(out: Path, names: list[str]) -> None:
    """Print the table, over all decks and for each."""
    head = (*_HEAD, *_COST)
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    details = []
    for name in names:
        runs = json.loads((out / name / "run.json").read_text())
        decks = {deck: slides_of(out / name / f"{deck}.pptx", out / "reference" / deck) for deck in runs}
        print(line_of(name, [row for rows in decks.values() for row in rows], runs), flush=True)
        details += [line_of(f"{name}: {deck}", rows, {deck: runs[deck]}) for deck, rows in decks.items()]
    print("\n" + "\n".join(details))


if __name__ == "__main__":
    task, place, *rest = sys.argv[1:]
    if task == "reference":
        reference(Path(place), [Path(each) for each in rest])
    else:
        score(Path(place), rest)
