"""Draw `terminal.svg`, the animated terminal of the README, from commands that really run (`make picture`).

Every line of output, every exit code and every pause in the picture is what this run measured. Without animation, as
in a viewer that has none, the picture shows the last frame.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMANDS = (
    "warren run -c 'import pandas as pd; print(pd.Series([1, 2, 3]).mean())'",
    "id=$(warren sandbox create --quiet)",
    "warren sandbox exec $id -c 'rows = [n * n for n in range(6)]'",
    "warren sandbox exec $id --timeout 1s -c 'while True: pass'",
    "warren sandbox exec $id -c 'import ctypes; ctypes.string_at(0)'",
    "warren sandbox exec $id -c 'print(rows)'",
    "warren sandbox rm $id >/dev/null",
)
COLUMNS, MOST_LINES = 92, 6
LINE_PX, CHARACTER_PX, MARGIN_PX, BAR_PX = 20, 8.4, 18, 34
KEYSTROKE_S, READING_S, LAST_FRAME_S = 0.025, 0.9, 5.0
COLOURS = {"command": "#e6edf3", "output": "#9fb1c1", "note": "#e3b341", "time": "#6e7f8d"}
STYLE = f"""
text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre }}
{" ".join(f".{name} {{ fill: {colour} }}" for name, colour in COLOURS.items())}
.prompt {{ fill: #56d364 }}
"""


@dataclass(frozen=True)
class Ran:
    """One command, what it printed, how it ended and how long that took."""

    command: str
    output: tuple[str, ...]
    exit_code: int
    seconds: float


@dataclass(frozen=True)
class Line:
    """One line of the terminal, and when it appears. A command is typed until `typed_s` and runs until `ended_s`."""

    text: str
    kind: str
    shown_s: float
    typed_s: float = 0.0
    ended_s: float = 0.0
    note: str = ""


@contextlib.contextmanager
def service(folder: str) -> Iterator[dict[str, str]]:
    """Run a service on a data folder of its own; yields the environment of commands that use it."""
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "WARREN_DATA_DIR": folder, "WARREN_SERVE_PORT": "0"}
    subprocess.run(["warren", "serve", "--daemon"], env=environ, check=True, stdout=subprocess.DEVNULL)
    try:
        # The first sandbox of an image starts its zygote, once: the picture begins after that.
        subprocess.run(["warren", "run", "-c", "pass"], env=environ, check=True)
        yield environ
    finally:
        subprocess.run(["warren", "stop"], env=environ, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["warren", "stop-engine"], env=environ, check=True, stdout=subprocess.DEVNULL)


def run_all(environ: dict[str, str]) -> Iterator[Ran]:
    """Run the commands in one shell, one after the other."""
    with subprocess.Popen(
        ["bash"], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        for command in COMMANDS:
            begun = time.monotonic()
            shell.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\036%s\\n' $?\n")
            shell.stdin.flush()
            output = []
            for line in shell.stdout:
                text, end, exit_code = line.partition("\036")
                output.append(text.rstrip("\n"))
                if end:
                    seconds = time.monotonic() - begun
                    yield Ran(command, tuple(filter(None, output)), int(exit_code), seconds)
                    break
        shell.stdin.close()


def lay_out(runs: list[Ran]) -> list[Line]:
    """Give every line its time: commands are typed, output appears when the command has ended."""
    now, lines = 0.5, []
    for ran in runs:
        typed = now + KEYSTROKE_S * len(ran.command)
        ended = typed + ran.seconds
        note = f"{ran.seconds * 1000:.0f} ms" if ran.seconds < 1 else f"{ran.seconds:.1f} s"
        note += f", exit {ran.exit_code}" if ran.exit_code else ""
        lines.append(Line(ran.command, "command", now, typed, ended, note))
        wrapped = [part for text in ran.output for part in textwrap.wrap(text, COLUMNS)]
        cut = len(wrapped) - MOST_LINES
        shown = wrapped if cut <= 0 else [f"… {cut + 1} lines", *wrapped[cut + 1 :]]
        is_note = False
        for text in shown:
            is_note = is_note or text.startswith("warren: ")
            lines.append(Line(text.rstrip(), "note" if is_note else "output", ended))
        now = ended + READING_S
    return lines


def draw(lines: list[Line]) -> str:
    """Return the picture: one group a line, and one loop of keyframes that shows them in turn."""
    total = max(max(line.shown_s, line.ended_s) for line in lines) + LAST_FRAME_S
    width = round(2 * MARGIN_PX + (COLUMNS + 20) * CHARACTER_PX)
    height = BAR_PX + MARGIN_PX + LINE_PX * len(lines) + MARGIN_PX
    keyframes, groups = {}, []
    for number, line in enumerate(lines):
        y = BAR_PX + MARGIN_PX + LINE_PX * number + 10
        text = escape(line.text, quote=False)
        if line.kind == "command":
            keyframes[f"t{number}"] = _type(line.shown_s / total, line.typed_s / total)
            keyframes[f"n{number}"] = _appear(line.ended_s / total)
            end = f'x="{width - MARGIN_PX}" y="{y}" text-anchor="end"'
            groups.append(f'<g class="n{number}"><text {end} class="time">{line.note}</text></g>')
            text = f'<tspan class="prompt">$ </tspan>{text}'
        else:
            keyframes[f"t{number}"] = _appear(line.shown_s / total)
        groups.append(f'<g class="t{number}"><text x="{MARGIN_PX}" y="{y}" class="{line.kind}">{text}</text></g>')
    animated = "".join(f".{name} {{ animation: {name} {total:.2f}s linear infinite }}\n" for name in keyframes)
    rules = "".join(f"@keyframes {name} {{ {rule} }}\n" for name, rule in keyframes.items())
    dots = "".join(
        f'<circle cx="{MARGIN_PX + 18 * n}" cy="{BAR_PX / 2:g}" r="5.5" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    body = "\n".join(groups)
    motion = f"@media (prefers-reduced-motion: no-preference) {{\n{animated}}}\n{rules}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">\n'
        f"<title>A terminal: variables of a sandbox survive a timeout and a crash</title>\n"
        f"<style>{STYLE}{motion}\n</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n{dots}\n{body}\n</svg>\n'
    )


def _appear(share: float) -> str:
    at = share * 100
    return f"0%, {at:.2f}% {{ opacity: 0 }} {at + 0.01:.2f}%, 100% {{ opacity: 1 }}"


def _type(begin: float, end: float) -> str:
    hidden, whole = "clip-path: inset(0 100% 0 0)", "clip-path: inset(0 0 0 0)"
    return f"0%, {begin * 100:.2f}% {{ {hidden} }} {end * 100:.2f}%, 100% {{ {whole} }}"


def main(target: str, images: str | None = None) -> None:
    """Write the picture. `images` is a data folder whose built images are used instead of building them."""
    with tempfile.TemporaryDirectory(prefix="warren-picture-") as folder:
        if images:
            os.symlink(os.path.abspath(os.path.join(images, "images")), os.path.join(folder, "images"))
        with service(folder) as environ:
            runs = list(run_all(environ))
    with open(target, "w", encoding="utf-8") as file:
        file.write(draw(lay_out(runs)))


if __name__ == "__main__":
    if shutil.which("bash") is None:
        sys.exit("the picture is made of commands in bash, which is not installed")
    main(*sys.argv[1:])
