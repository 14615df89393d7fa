"""The program of one render, run inside a sandbox: `python -m warren.render.job`. It renders one deck and ends.

Warm (`--warm`): starts the browser, prints `{"type": "ready"}`, and reads one line from its standard input: the path of
a job file. Cold: the path is its argument. For people: `--html X --out Y.pptx [--assets DIR] [--editable]`.

A job file is JSON. Paths in it are relative to its folder.
  html, assets     the page (`index.html`) and the folder of its assets (`assets`), which need not exist
  zip, result      what to write (`out.zip`, `result.json`)
  name             of the PowerPoint file in the ZIP, without `.pptx` (`presentation`)
  editable         real text and shapes (true), or one picture a slide (false)
  mirror           folder of npm packages that stand for the web (that of the image)
  max_slides, max_output_bytes, timeout_s

Standard output is lines of JSON: `{"type": "progress", "stage": "load|slides|write", "done": 3, "of": 15}`, and last
`{"type": "done", "ok": true}`. Then the result file is complete:
  {"ok": true, "slides": 15, "width": 1920, "height": 1080, "fallbacks": [{"slide": 3, "reason": "…"}],
   "missing": [{"url": "…", "count": 1}], "script_errors": ["…"], "seconds": {"load": 0.2, …}}
  {"ok": false, "error": {"code": "…", "message": "…"}, …the same…}
Codes: bad_job, no_slides, too_many_slides, slide_size, output_too_large, page_changed, page_left, page_crashed,
page_hung, load_failed, timeout, browser_missing, failed. The program ends with 0 if it is ok, else with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.render.browser.browser import Browser, BrowserMissing
from warren.render.browser.cdp import BrowserGone, CallRefused, ScriptFailed
from warren.render.browser.deck import Deck, RenderFailed
from warren.render.browser.mirror import Mirror
from warren.render.rendering import Rendered, Rendering

if TYPE_CHECKING:
    from collections.abc import Sequence

MIRROR = os.path.join(sys.prefix, "lib", "node_modules")
"""Where the image has its npm packages."""
_MAX_JOB_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job file, read."""

    html: str = "index.html"
    assets: str = "assets"
    zip: str = "out.zip"
    result: str = "result.json"
    name: str = "presentation"
    editable: bool = False
    max_slides: int = 200
    max_output_bytes: int = 220_000_000
    timeout_s: float = 180.0
    mirror: str = MIRROR

    @classmethod
    def read(cls, path: str) -> Job:
        """Read a job file; paths in it become absolute. Raises RenderFailed."""
        try:
            with open(path, "rb") as file:
                values = json.loads(file.read(_MAX_JOB_BYTES))
            job = cls(**values)
        except (OSError, ValueError, TypeError) as error:
            raise RenderFailed("bad_job", f"the job file cannot be read: {error}") from error
        folder = os.path.dirname(os.path.abspath(path))
        paths: dict[str, Any] = {
            name: os.path.join(folder, getattr(job, name)) for name in ("html", "assets", "zip", "result")
        }
        return dataclasses.replace(job, **paths)

    def load_deck(self) -> Deck:
        """Read the page and its assets. Raises RenderFailed."""
        try:
            with open(self.html, "rb") as file:
                html = file.read()
            return Deck(html, _read_folder(self.assets))
        except OSError as error:
            raise RenderFailed("bad_job", f"the deck cannot be read: {error}") from error


def _read_folder(top: str) -> dict[str, bytes]:
    """Read all files below a folder, by their relative names."""
    found = {}
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, top)] = file.read()
    return found


async def serve_one(path: str | None) -> bool:
    """Render one job: the file at `path`, or the one that standard input names once the browser is up."""
    try:
        async with Browser() as browser:
            if path is None:
                await warm_up(browser)
                say(type="ready")
                path = (await asyncio.to_thread(sys.stdin.readline)).strip()
                if not path:
                    return True
            return await render(browser, path)
    except BrowserMissing as error:
        say(type="done", ok=False, error={"code": "browser_missing", "message": str(error)})
        return False


async def warm_up(browser: Browser) -> None:
    """Load fonts and take a first screenshot, the slowest steps of a browser; import the remaining modules."""
    import warren.render.editable  # noqa: F401 - imported before the first job

    words = "<body style='font:40px Inter,sans-serif'><b>Warren</b> <i>漢字</i> 😀 <code>{}</code>"
    await browser.page.call("Page.setDocumentContent", {"frameId": browser.page.frame_id, "html": words})
    await browser.page.call("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})


async def render(browser: Browser, path: str) -> bool:
    """Render the job of a file and write its result. Never raises, whatever a deck does."""
    rendered, error = Rendered(), None
    job = Job(result=os.path.join(os.path.dirname(path), "result.json"))
    try:
        job = Job.read(path)
        rendering = Rendering(browser, job, tell)
        rendered = rendering.result
        async with asyncio.timeout(job.timeout_s) as limit:
            await rendering.run(job.load_deck(), Mirror(job.mirror))
    except TimeoutError:
        error = ("page_hung", "the page did not answer: a script of the deck does not end")
        if limit.expired():
            error = ("timeout", f"render timeout exceeded after {job.timeout_s:.0f} seconds")
    except RenderFailed as failure:
        error = (failure.code, str(failure))
    except BrowserGone as gone:
        error = ("page_crashed", str(gone))
    except (CallRefused, ScriptFailed, OSError) as refused:
        error = ("failed", f"rendering failed: {refused}")
    except Exception as unforeseen:  # noqa: BLE001 - the caller needs a result, whatever a deck does
        error = ("failed", f"rendering failed: {type(unforeseen).__name__}: {unforeseen}"[:500])
    finish(job.result, rendered, error)
    return error is None


def finish(path: str, rendered: Rendered, error: tuple[str, str] | None) -> None:
    """Write the result file atomically, then report it."""
    result: dict[str, Any] = {"ok": error is None, **dataclasses.asdict(rendered)}
    if error is not None:
        result["error"] = {"code": error[0], "message": error[1]}
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(result, file)
    os.replace(f"{path}.new", path)
    say(type="done", ok=error is None)


def tell(stage: str, done: int, total: int) -> None:
    """Report progress."""
    say(type="progress", stage=stage, done=done, of=total)


def say(**message: Any) -> None:
    """Write one line to standard output for the parent process."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def render_by_hand(arguments: argparse.Namespace) -> bool:
    """Render the files of the command line and print the result."""
    import zipfile

    out = os.path.abspath(arguments.out)
    with tempfile.TemporaryDirectory(prefix="warren-render-") as folder:
        job = {
            "html": os.path.abspath(arguments.html),
            "assets": os.path.abspath(arguments.assets or os.path.join(os.path.dirname(arguments.html), "assets")),
            "zip": out if out.endswith(".zip") else os.path.join(folder, "out.zip"),
            "editable": arguments.editable,
        }
        path = os.path.join(folder, "job.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(job, file)
        ok = asyncio.run(serve_one(path))
        with open(os.path.join(folder, "result.json"), encoding="utf-8") as file:
            sys.stderr.write(file.read() + "\n")
        if ok and not out.endswith(".zip"):
            with zipfile.ZipFile(job["zip"]) as archive, open(out, "wb") as target:
                target.write(archive.read("presentation.pptx"))
    return ok


def main(argv: Sequence[str] | None = None) -> int:
    """Render one deck."""
    parser = argparse.ArgumentParser(prog="warren.render.job")
    parser.add_argument("job", nargs="?")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--html")
    parser.add_argument("--assets")
    parser.add_argument("--out", default="out.pptx")
    parser.add_argument("--editable", action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.html:
        return 0 if render_by_hand(arguments) else 1
    if not arguments.warm and not arguments.job:
        parser.error("name a job file, or --warm, or --html")
    return 0 if asyncio.run(serve_one(None if arguments.warm else arguments.job)) else 1


if __name__ == "__main__":
    sys.exit(main())
